"""The composition added to the base result that it is over: what a layer with an adapter gives.

    out = result + ((g - 1) * base + g * (s * lora)),    base = result - bias

One pass over memory forward and one backward, where the sum of compose and the base result takes
three more (arXiv:2603.22276, appendix A, has the caller add the two).
"""

from typing import Optional

import torch
from torch import Tensor

from dorajit import _native, autograd, checks, dispatch, errors, expression, ops, run
from dorajit.control import state

_empty_like = torch.empty_like


def fused_dora_compose_residual(lora: Tensor, result: Tensor, mag_norm_scale: Tensor, scale: float,
                                bias: Optional[Tensor] = None) -> Tensor:
    """result + ((mag_norm_scale - 1) * base + mag_norm_scale * (scale * lora)), in one pass.

    Args:
        lora, mag_norm_scale, scale: as for fused_dora_compose.
        result: the base layer's, of lora's shape and device; may be of another element type.
        bias: what result holds beside base: base = result - bias, and the bias is not scaled. One
            element per channel. None: nothing.

    Returns:
        A new tensor of lora's shape, in the type that PyTorch's result + lora would have. It is
        computed in float32 (float64 if an operand is that) and rounded once. Differentiable; with a
        bias that requires grad as several operations, and so under torch.compile and in transforms
        of torch.func.

    Errors as those of fused_dora_compose.
    """
    if not torch.compiler.is_compiling():
        operands = (lora, result, mag_norm_scale) if bias is None else (lora, result, mag_norm_scale,
                                                                        bias)
        route = ops.route(*operands, scale)
        if route == 1:
            return compose_residual(lora, result, mag_norm_scale, bias, scale, False)[0]
        if (route == 2 and state.fused_backward and not lora.is_complex()
                and (bias is None or not bias.requires_grad)):
            return _apply(lora, result, mag_norm_scale, bias, scale)[0]
        check("fused_dora_compose_residual", lora, result, mag_norm_scale, bias)
    return apart(lora, result, mag_norm_scale, bias, scale, ops.fused_dora_compose_autograd)


def apart(lora, result, gain, bias, scale, compose):
    """The sum by several operations, of which `compose` makes what is added to the base result."""
    base = result if bias is None else result - _over(bias, gain)
    return result + compose(lora.to(torch.promote_types(lora.dtype, result.dtype)), base, gain, scale)


def check(function, lora, result, mag_norm_scale, bias):
    """Raises what the function's arguments deserve."""
    given = {"lora": lora, "result": result, "mag_norm_scale": mag_norm_scale}
    if bias is not None:
        given["bias"] = bias
    checks.tensors(function, **given)
    checks.same_device(function, **given)
    checks.same_shape(function, lora=lora, result=result)
    checks.broadcasts(function, "mag_norm_scale", mag_norm_scale, "lora", lora)
    if not lora.is_complex() and any(one.is_complex() for one in given.values()):
        raise TypeError(f"{function}: argument `lora` is real but others are complex; make it complex")
    if bias is not None and bias.numel() != mag_norm_scale.numel():
        raise ValueError(f"{function}: argument `bias` has shape {tuple(bias.shape)} but "
                         f"`mag_norm_scale` has {tuple(mag_norm_scale.shape)}; give both one element "
                         "per channel")


def compose_residual(lora, result, gain, bias, scale, keeps_inner):
    """The sum, and scale * lora + base or None, without autograd."""
    if bias is not None and bias.dim() != gain.dim():
        bias = _over(bias, gain)
    if state.enabled:
        made = _native.compose_residual_directly(lora, result, gain, bias, scale, keeps_inner)
        if made is not None:
            return made
    dtype = torch.promote_types(lora.dtype, result.dtype)
    if state.enabled:
        out = _empty_like(lora, dtype=dtype)
        inner = _empty_like(out) if keeps_inner else None
        try:
            _native.compose_residual(lora, result, gain, bias, out, inner, scale)
            return out, inner
        except errors.Error as error:
            check("compose_residual", lora, result, gain, bias)
            answer, biased = _plan(error, {"lora": lora, "result": result, "out": out, "inner": inner},
                                   gain, bias)
        if answer.reason is None:
            views = answer.matrices
            _native.compose_residual(*views[:2], answer.gain, biased, *views[2:], scale)
            return out, inner
        dispatch.require_native("compose_residual", answer)
    else:
        check("compose_residual", lora, result, gain, bias)
    out, inner = expression.compose_residual(lora, result, gain, bias, scale, dtype)
    return out, inner if keeps_inner else None


def _plan(error, matrices, gain, bias):
    """What to do after the native library refused: a dispatch.Plan, and the bias that goes with it."""
    if bias is None:
        return dispatch.retry(error, matrices, gain), None
    reason = dispatch.unfit("bias", bias)
    if reason is not None:
        return dispatch.Plan(reason), None
    compact = _over(bias, gain).contiguous()
    biased = dispatch.plan(matrices, compact)
    if biased.reason is not None:
        return biased._replace(reason=biased.reason.replace("mag_norm_scale", "bias")), None
    # Where the bias was all that was wrong, the rest fits as it is.
    is_changed = compact is not bias and isinstance(error, dispatch.RETRIED)
    answer = dispatch.plan(matrices, gain) if is_changed else dispatch.retry(error, matrices, gain)
    return answer, biased.gain


def _over(bias, gain):
    """The bias in the gain's shape, if it has as many elements."""
    return bias.reshape(gain.shape) if bias.numel() == gain.numel() else bias


class ComposeResidual(torch.autograd.Function):
    """The node; outputs and what is saved as those of autograd.Compose. The bias is a constant."""

    @staticmethod
    def forward(ctx, lora, result, gain, bias, scale):
        ctx.scale, ctx.types = scale, (lora.dtype, result.dtype)
        ctx.set_materialize_grads(False)
        out, inner = compose_residual(lora, result, gain, bias, scale, ctx.needs_input_grad[2])
        ctx.save_for_backward(gain, inner)
        return out, inner

    @staticmethod
    def backward(ctx, d_out, d_inner):
        gain, inner = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        d_lora = d_result = d_gain = None
        if d_out is not None:
            # In PyTorch if the backward pass is to be differentiated itself.
            backward = (expression if torch.is_grad_enabled() else run).residual_backward
            d_lora, d_result, d_gain = backward(d_out, inner, gain, ctx.scale, wanted, ctx.types)
        if d_inner is not None:
            d_lora, d_result = autograd.add_inner(d_lora, d_result, d_inner, ctx.scale, wanted,
                                                  ctx.types[1])
        return d_lora, d_result, d_gain, None, None


_apply = super(torch.autograd.Function, ComposeResidual).apply
