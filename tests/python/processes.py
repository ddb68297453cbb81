"""Python programs run as processes of their own, with the environment that a test wants."""

import os
import subprocess
import sys

_FORKS = "ignore:This process:DeprecationWarning"
_START = """
import torch, dorajit
from dorajit import testing
torch.manual_seed(0)
lora, base, gain = torch.randn(4, 32), torch.randn(4, 32), 1 + torch.randn(32) / 16
expected = (gain - 1) * base + gain * (0.5 * lora)
def right(): return torch.equal(dorajit.fused_dora_compose(lora, base, gain, 0.5, False), expected)
"""


def run(program, start=_START, arguments=(), **environment):
    """What the program prints. It must end by itself and say nothing on standard error, where Python
    3.12 and newer warn of forks among threads, which some programs are about."""
    variables = {**os.environ, "DORAJIT_LOG": "error", **environment}
    result = subprocess.run([sys.executable, "-W", _FORKS, *arguments, "-c", start + program], env=variables,
                            capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0 and not result.stderr, result.stderr or result.returncode
    return result.stdout.strip()
