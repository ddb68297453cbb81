"""Runs Python programs as separate processes, with a test's environment."""

import os
import subprocess
import sys

import torch_server

_FORKS = "ignore:This process:DeprecationWarning"
_START = """
import torch, dorajit
from dorajit import testing
torch.manual_seed(0)
lora, base, gain = torch.randn(4, 32), torch.randn(4, 32), 1 + torch.randn(32) / 16
expected = (gain - 1) * base + gain * (0.5 * lora)
def right(): return torch.equal(dorajit.fused_dora_compose(lora, base, gain, 0.5, False), expected)
"""


def run(program, start=_START, arguments=(), fresh=False, **environment):
    """The program's standard output. It must succeed without output on standard error. The warning of Python
    3.12 and newer about forks in multithreaded processes is ignored, because some programs fork.

    Args:
        arguments: options of the interpreter.
        fresh: start a new interpreter, instead of forking a process that has imported PyTorch.
    """
    variables = {**os.environ, "DORAJIT_LOG": "error", **environment}
    if fresh or arguments or not torch_server.serves(variables):
        result = subprocess.run([sys.executable, "-W", _FORKS, *arguments, "-c", start + program], env=variables,
                                capture_output=True, text=True, timeout=120, check=False)
    else:
        result = torch_server.run(start + program, variables, ["-W", _FORKS])
    assert result.returncode == 0 and not result.stderr, result.stderr or result.returncode
    return result.stdout.strip()
