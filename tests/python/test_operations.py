"""Checks, sizes and types of operations follow from their description in the library's table, to which others are added."""

import os
import pathlib
import subprocess
import sys

import dorajit
import pytest
import torch
from dorajit import _native, checks
from dorajit.operations import eligibility, run
from dorajit.operations.table import Operand, Operation, operations

# A low-rank product: no input has the dimensions of its output.
LAUNCHED = []
LOW_RANK = Operation(
    "low_rank", "y = x @ A.T @ B.T + bias",
    (Operand("x", ("tokens", "in")), Operand("A", ("rank", "in")), Operand("B", ("out", "rank")),
     Operand("bias", ("out",))),
    (Operand("y", ("tokens", "out")), Operand("norms", ("out",))), ("alpha", "beta"),
    lambda *arguments: LAUNCHED.append(arguments) or arguments[4:6], lambda *_: 0)


def tensors():
    return torch.randn(2, 3, 8), torch.randn(4, 8), torch.randn(6, 4), torch.randn(6)


def test_operands_with_matching_dimensions_are_accepted():
    checks.operands("f", LOW_RANK, tensors())


@pytest.mark.parametrize("at, wrong, message", [
    (1, torch.randn(4, 7), "`A` has 7 `in` but `x` has 8"),
    (2, torch.randn(6, 5), "`B` has 5 `rank` but `A` has 4"),
    (3, torch.randn(5), "`bias` has 5 `out` but `B` has 6"),
    (3, torch.randn(()), "`bias` has 1 `out` but `B` has 6"),
])
def test_operand_with_another_size_raises(at, wrong, message):
    given = [*tensors()]
    given[at] = wrong
    with pytest.raises(ValueError, match=message):
        checks.operands("f", LOW_RANK, tuple(given))


def test_operands_of_equal_dimensions_with_other_shapes_raise():
    terms = torch.rand(2, 8), torch.rand(4, 4), torch.rand(2, 8)
    with pytest.raises(ValueError, match="`cross` has shape"):
        checks.operands("f", operations["norm_assembly"], terms)


def test_shape_of_output_follows_from_inputs():
    y, norms = run.allocated(LOW_RANK, tensors(), (torch.float32, torch.float64))
    assert y.shape == (2, 3, 6) and norms.shape == (6,) and norms.dtype is torch.float64


def test_extension_module_allocates_outputs_by_sizes_of_inputs():
    weight, a, b = torch.randn(2, 3, 8), torch.randn(4, 8), torch.randn(2, 3, 4)
    norm, *others = operations["weight_norm"].launch(weight, a, b, None, torch.float32, None, None, None, 0.5)
    assert others == [None] * 3 and norm.shape == (2, 3)
    expected = (weight + 0.5 * b @ a).norm(dim=-1)
    torch.testing.assert_close(norm, expected)


def test_output_of_unknown_size_raises():
    with pytest.raises(dorajit.InvalidArgumentError, match="`norm` is not a tensor, and no input determines its sizes"):
        operations["weight_norm"].launch(*tensors()[:1], torch.randn(4, 8), torch.randn(2, 3, 4), None, True,
                                         None, None, None, 0.5)


def test_scalars_are_passed_after_the_outputs():
    LAUNCHED.clear()
    run.launch(LOW_RANK, tensors(), (torch.float32, torch.float64), 0.5, 0.25)
    assert LAUNCHED[0][-2:] == (0.5, 0.25)


def test_kernel_accepts_strided_rows_but_not_strided_elements():
    x, a, b, bias = tensors()
    assert eligibility.plan(LOW_RANK, (x, torch.randn(4, 16)[:, :8], b, bias)).reason is None
    assert "`A` has strides" in eligibility.plan(LOW_RANK, (x, torch.randn(8, 4).T, b, bias)).reason
    assert "`bias` has strides" in eligibility.plan(LOW_RANK, (x, a, b, torch.randn(12)[::2])).reason


def test_explain_dispatch_with_too_many_tensors_raises():
    lora, gain = torch.randn(4, 8), torch.rand(8)
    assert dorajit.explain_dispatch(lora, lora, gain, "compose_residual", others=(gain,)).path == "native"
    answer = dorajit.explain_dispatch(lora, lora, gain, "compose_residual", others=(gain.to(torch.float8_e4m3fn),))
    assert answer.path == "torch" and "`bias` has elements" in answer.reason
    assert dorajit.explain_dispatch(lora, None, gain, "backward").path == "native"
    with pytest.raises(TypeError, match="compose has 3 tensors, not 4"):
        dorajit.explain_dispatch(lora, lora, gain, others=(gain,))


def test_operator_schemas_have_the_names_of_scalars():
    for name, operation in operations.items():
        schema = getattr(torch.ops.dorajit, name).default._schema
        floats = [one.name for one in schema.arguments if str(one.type) == "float"]
        assert floats == list(operation.scalars) == ([] if name.startswith("gated_") else ["scale"])


# --- an operation that is added from a separate folder -------------------------------------------

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


# --- docs/c_abi.md -------------------------------------------------------------------------------

PAGE = pathlib.Path(__file__).parents[2] / "docs/c_abi.md"


def text_of(operand):
    shape = ", ".join(operand.dimensions)
    return f"{operand.name}{'' if operand.is_required else '?'} [{shape}]"


def row(operation):
    given = ", ".join(map(text_of, operation.inputs))
    made = ", ".join(map(text_of, operation.outputs))
    scalars = ", ".join(operation.scalars) or "-"
    return f"| `{operation.name}` | {given} | {made} | {scalars} | {operation.documentation} |"


def test_each_operation_has_its_row_in_the_page_of_the_c_abi():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `") and " [" in line]
    wanted = [row(one) for one in operations.values()]
    assert rows == wanted, "put these rows into docs/c_abi.md:\n" + "\n".join(wanted)
