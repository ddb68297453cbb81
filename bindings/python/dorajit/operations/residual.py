"""The composition added to its base result, the output of a layer with an adapter.

    out = result + ((g - 1) * base + g * (s * lora)),    base = result - bias

Forward and backward are one pass over memory each. Adding the base result to compose separately, as in
arXiv:2603.22276, appendix A, takes three more passes.
"""

from typing import Optional

from torch import Tensor

from dorajit import checks
from dorajit.operations import api, autograd, compositions, dispatch, eligibility, expression, torch_library
from dorajit.operations.eligibility import AUTOGRAD, NOBODY, OPERATOR, is_compiling, who_sees
from dorajit.operations.table import operations

_NAME = "fused_dora_compose_residual"


def fused_dora_compose_residual(lora: Tensor, result: Tensor, gain: Tensor, scale: float,
                                bias: Optional[Tensor] = None) -> Tensor:
    """result + ((gain - 1) * base + gain * (scale * lora)), in one pass.

    Args:
        lora, gain, scale: as for fused_dora_compose.
        result: the output of the base layer, of lora's shape and device; may have another element type.
        bias: the base layer's bias, which is part of result but is not scaled: base = result - bias. One
            element per channel. None: no bias.

    Returns:
        A new tensor of lora's shape, in the element type of PyTorch's result + lora. It is
        computed in float32 (float64 if an operand is float64) and rounded once. Differentiable; with a
        bias that requires grad, and in torch.func transforms, it runs as several operations.

    Errors are those of fused_dora_compose.
    """
    is_traced = is_compiling()
    if not is_traced:
        seen = who_sees(lora, result, gain, scale) if bias is None else who_sees(lora, result, gain, bias, scale)
        if seen == NOBODY:
            return compositions.compose_residual(lora, result, gain, bias, scale, False)[0]
        if seen == AUTOGRAD and eligibility.has_fused_graph(lora, bias):
            return autograd.compose_residual(lora, result, gain, bias, scale)
    operands = (lora, result, gain) if bias is None else (lora, result, gain, bias)
    route = eligibility.route(*operands, scale, has_node=True, constant=bias)
    if not is_traced:  # the operator checks the arguments
        scale = checks.scale(_NAME, scale)
        checks.operands(_NAME, operations["compose_residual"], (lora, result, gain, bias))
        eligibility.allow_expression(_NAME, *operands)
    if route is OPERATOR:
        return torch_library.compose_residual(lora, result, gain, bias, scale)
    return apart(lora, result, gain, bias, scale, api.fused_dora_compose_autograd)


def apart(lora, result, gain, bias, scale, compose):
    """The sum as several operations; `compose` computes the term that is added to the base result."""
    base = result
    if bias is not None:
        if bias.numel() != gain.numel():  # checked here too, so that a compiler that stops here shows the message
            raise ValueError(f"{_NAME}: argument `bias` has shape {tuple(bias.shape)} but `gain` "
                             f"has {tuple(gain.shape)}; give both one element per channel")
        base = result - expression.over(dispatch.over_channels(bias, gain), result)
    return result + compose(lora.to(expression.sum_type(lora, result)), base, gain, scale)
