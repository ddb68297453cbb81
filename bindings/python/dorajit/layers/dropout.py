"""The composition for a dropped-out input, for which the base layer has not computed a base result.

The base result x W^T is computed in slices of output columns, so that only one slice of it is in
memory at a time, forward and backward.
"""

import torch
import torch.nn.functional as F

from dorajit import thresholds
from dorajit.layers import tiers
from dorajit.norms import precision
from dorajit.operations import autograd, compositions, eligibility, expression
from dorajit.control import state

_ALIGNED = 64


def columns_at_once(rows, out, element_bytes, budget):
    """The number of output columns of the base result that fit the budget: a multiple of 64, or all.

    Args:
        rows, out: sizes of the base result.
        element_bytes: bytes per element.
        budget: bytes.
    """
    fitting = budget // max(rows * element_bytes, 1)
    return out if fitting >= out else min(max(fitting // _ALIGNED, 1) * _ALIGNED, out)


def delta(x, weight, lora, gain, scale, fresh=False):
    """tiers.delta with the base result x @ weight.T.

    Args:
        x: [..., in], the input after dropout.
        weight: [out, in], with any strides. If it requires grad, the base result is not sliced.
        lora: [..., out], the low-rank result.
        gain: one element per output column, of any shape.
        fresh: as for tiers.delta.
    """
    gain = gain.reshape(-1)
    if not torch.is_grad_enabled():
        gain = gain.detach()  # so that nothing is saved for a backward pass
    at_once = weight.shape[0]
    if not (weight.requires_grad or eligibility.is_observed()):  # a tracer cannot read the budget
        rows = lora.numel() // max(lora.shape[-1], 1)
        at_once = columns_at_once(rows, at_once, lora.element_size(), thresholds.get_dora_forward_threshold_bytes())
    if at_once >= weight.shape[0]:
        return tiers.delta(lora, F.linear(x, weight.to(x.dtype)), gain, scale, fresh)
    x = precision.as_autocast(x)
    with precision.without_autocast(x.device.type):
        return _Sliced.apply(x, weight.detach(), lora, gain, scale, at_once)


class _Sliced(torch.autograd.Function):
    """All slices as one node. Saves x, the weight and the gain, and inner if the gain needs a gradient."""

    @staticmethod
    def forward(ctx, x, weight, lora, gain, scale, at_once):
        ctx.scale, ctx.at_once, ctx.x_dtype = scale, at_once, x.dtype
        out = torch.empty_like(lora, memory_format=torch.contiguous_format)
        inner = torch.empty_like(out) if ctx.needs_input_grad[3] else None
        for columns in _slices(weight.shape[0], at_once):
            base = F.linear(x, weight[columns].to(x.dtype))
            kept = _compose(lora[..., columns], base, gain[columns], scale, inner is not None, out[..., columns])
            if inner is not None:
                inner[..., columns] = kept
        ctx.save_for_backward(x, weight, gain, inner)
        return out

    @staticmethod
    def backward(ctx, d_out):
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError("dropout: the base result was computed in slices, which have no second-order "
                               "gradients; call dorajit.set_dora_forward_threshold_mb() with a value that fits "
                               "the whole base result, or leave out create_graph=True")
        x, weight, gain, inner = ctx.saved_tensors
        needs = ctx.needs_input_grad
        d_x = torch.zeros_like(x, memory_format=torch.contiguous_format) if needs[0] else None
        d_lora = torch.empty_like(d_out) if needs[2] else None
        d_gain = torch.empty_like(gain) if needs[3] else None
        for columns in _slices(weight.shape[0], ctx.at_once):
            part, kept = d_out[..., columns], None if inner is None else inner[..., columns]
            to_lora, to_base, to_gain = _backward(part, kept, gain[columns], ctx.scale,
                                                     (needs[2], needs[0], needs[3]), ctx.x_dtype)
            if needs[0]:
                d_x.view(-1, d_x.shape[-1]).addmm_(to_base.reshape(-1, to_base.shape[-1]),
                                                   weight[columns].to(x.dtype))
            if needs[2]:
                d_lora[..., columns] = to_lora
            if needs[3]:
                d_gain[columns] = to_gain
        return d_x, None, d_lora, d_gain, None, None


def _slices(out, at_once):
    return (slice(start, min(start + at_once, out)) for start in range(0, out, at_once))


def _is_fused():
    return state.enabled and state.fused_backward


def _compose(lora, base, gain, scale, keeps_inner, out):
    """inner or None, as from compositions.compose, or from its formula in PyTorch if kernels are switched off."""
    if _is_fused():
        return compositions.compose(lora, base, gain, scale, keeps_inner, out)[1]
    result, inner = expression.compose_inner(lora, base, gain, scale)
    out.copy_(result)
    return inner


def _backward(d_out, inner, gain, scale, wanted, base_dtype):
    """autograd.backward, or its formula in PyTorch if kernels are switched off."""
    inner = inner if wanted[2] else None
    if _is_fused():
        return autograd.backward((d_out, inner, gain), scale, wanted, (base_dtype,))
    return expression.backward(d_out, inner, gain, scale, wanted, base_dtype)
