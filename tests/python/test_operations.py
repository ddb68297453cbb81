"""Checks, sizes and types of operations follow from their description in the library's table."""

import dorajit
import pytest
import torch
from dorajit import checks
from dorajit.operations import dispatch, run
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
    assert dispatch.plan(LOW_RANK, (x, torch.randn(4, 16)[:, :8], b, bias)).reason is None
    assert "`A` has strides" in dispatch.plan(LOW_RANK, (x, torch.randn(8, 4).T, b, bias)).reason
    assert "`bias` has strides" in dispatch.plan(LOW_RANK, (x, a, b, torch.randn(12)[::2])).reason


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
