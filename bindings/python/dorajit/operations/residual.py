"""The composition added to the base result that it is over: what a layer with an adapter gives.

    out = result + ((g - 1) * base + g * (s * lora)),    base = result - bias

One pass over memory forward and one backward, where the sum of compose and the base result takes
three more (arXiv:2603.22276, appendix A, has the caller add the two).
"""

from typing import Optional

from torch import Tensor

from dorajit import checks
from dorajit.operations import api, autograd, compositions, dispatch, eligibility, expression, torch_library
from dorajit.operations.eligibility import AUTOGRAD, NOBODY, OPERATOR
from dorajit.operations.table import operations

_NAME = "fused_dora_compose_residual"


def fused_dora_compose_residual(lora: Tensor, result: Tensor, gain: Tensor, scale: float,
                                bias: Optional[Tensor] = None) -> Tensor:
    """result + ((gain - 1) * base + gain * (scale * lora)), in one pass.

    Args:
        lora, gain, scale: as for fused_dora_compose.
        result: the base layer's, of lora's shape and device; may be of another element type.
        bias: what result holds beside base: base = result - bias, and the bias is not scaled. One
            element per channel. None: nothing.

    Returns:
        A new tensor of lora's shape, in the type that PyTorch's result + lora would have. It is
        computed in float32 (float64 if an operand is that) and rounded once. Differentiable; with a
        bias that requires grad as several operations, and so in transforms of torch.func.

    Errors as those of fused_dora_compose.
    """
    is_compiling = eligibility.is_compiling()
    operands = (lora, result, gain) if bias is None else (lora, result, gain, bias)
    if not is_compiling:
        seen = eligibility.who_sees(*operands, scale)
        if seen == NOBODY:
            return compositions.compose_residual(lora, result, gain, bias, scale, False)[0]
        if seen == AUTOGRAD and eligibility.has_fused_graph(lora, bias):
            return autograd.compose_residual(lora, result, gain, bias, scale)
    route = eligibility.route(*operands, scale, has_node=True, constant=bias)
    if route is OPERATOR and is_compiling:  # the operator checks its arguments
        return torch_library.compose_residual(lora, result, gain, bias, scale)
    if not is_compiling:
        scale = checks.scale(_NAME, scale)
        checks.operands(_NAME, operations["compose_residual"], (lora, result, gain, bias))
        eligibility.allow_expression(_NAME, *operands)
        if route is OPERATOR:
            return torch_library.compose_residual(lora, result, gain, bias, scale)
    return apart(lora, result, gain, bias, scale, api.fused_dora_compose_autograd)


def apart(lora, result, gain, bias, scale, compose):
    """The sum by several operations, of which `compose` makes what is added to the base result."""
    base = result
    if bias is not None:
        if bias.numel() != gain.numel():  # in words that a compiler which gives up here repeats
            raise ValueError(f"{_NAME}: argument `bias` has shape {tuple(bias.shape)} but `gain` "
                             f"has {tuple(gain.shape)}; give both one element per channel")
        base = result - expression.over(dispatch.over_channels(bias, gain), result)
    return result + compose(lora.to(expression.sum_type(lora, result)), base, gain, scale)
