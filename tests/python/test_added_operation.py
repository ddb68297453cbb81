"""An operation that is added to the library from a separate folder can be called from Python."""

import os
import pathlib
import subprocess
import sys

import dorajit
import pytest
from dorajit import _native

# The folder of the package with such a library in a build tree.
FOLDER = pathlib.Path(_native.__file__).parents[3] / "tests/added_operation"

PROGRAM = """
import torch
import dorajit
from dorajit import _native, testing

x, residual = torch.randn(37, 129), torch.randn(37, 129)
gain, out = torch.rand(129), torch.empty(37, 129)
operator = torch.ops.dorajit.scaled_residual
dorajit.warmup("scaled_residual", x, residual, gain)
_native.scaled_residual(x, residual, gain, out, 0.75)
assert torch.equal(out, gain * (0.75 * x) + residual)
assert testing.launch_counts()["scaled_residual"] == 1
assert torch.equal(_native.scaled_residual(x, residual, gain, torch.float32, 0.75), out)
assert torch.equal(operator(x, residual, gain, 0.75), out)
assert testing.launch_counts()["scaled_residual"] == 3
torch.library.opcheck(operator.default, (x, residual, gain, 0.75),
                      test_utils=("test_schema", "test_faketensor"))
assert "Tensor x, Tensor residual, Tensor gain, float scale) -> Tensor" in str(operator.default._schema)
assert dorajit.explain_dispatch(x, residual, gain, "scaled_residual").path == "native"
assert "out = gain * (scale * x) + residual" in _native.scaled_residual.__doc__
# An operation with two scalars and no operand with channels.
y = torch.empty_like(x)
weighted = torch.ops.dorajit.weighted_sum
dorajit.warmup("weighted_sum", x, residual)
_native.weighted_sum(x, residual, y, 0.75, -0.5)
assert torch.equal(y, 0.75 * x + -0.5 * residual)
assert torch.equal(weighted(x, residual, 0.75, -0.5), y)
assert testing.launch_counts()["weighted_sum"] == 2
assert "Tensor x, Tensor y, float alpha, float beta) -> Tensor" in str(weighted.default._schema)
assert dorajit.explain_dispatch(x, residual, operation="weighted_sum").path == "native"
for arguments in ((x, residual, y, 0.75), (x, residual, y, 0.75, None)):
    try:
        _native.weighted_sum(*arguments)
    except TypeError:
        pass
    else:
        raise AssertionError("a scalar may be left out")
try:
    _native.scaled_residual(x, residual, gain[1:], out, 0.75)
except ValueError as error:
    assert "129 columns" in str(error), error
else:
    raise AssertionError("a gain that is too short is taken")
"""


@pytest.mark.skipif(not (FOLDER / "dorajit").is_dir(), reason="this package lies in no build tree")
@pytest.mark.parametrize("compiler", ["none", None])
def test_added_operation_can_be_called_compiled_and_counted(compiler, tmp_path):
    variables = {name: value for name, value in os.environ.items() if name != "DORAJIT_CXX"}
    if compiler is not None:
        variables["DORAJIT_CXX"] = compiler
    variables |= {"PYTHONPATH": str(FOLDER), "DORAJIT_CACHE_DIR": str(tmp_path),
                  "DORAJIT_TUNE": "first_use", "DORAJIT_TUNE_SECONDS": "0.1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "artifacts").is_dir() == (compiler is None)


def test_added_operation_is_absent_from_the_shipped_library():
    assert not hasattr(_native, "scaled_residual")
    with pytest.raises(ValueError, match="scaled_residual"):
        dorajit.warmup("scaled_residual")
