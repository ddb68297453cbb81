"""The composition as a node of autograd's graph, for eager calls."""

import torch

from dorajit import run

_ops = torch.ops.dorajit
_is_grad_enabled = torch.is_grad_enabled


class Compose(torch.autograd.Function):
    """The node. Its outputs are the result and `inner = scale * lora + base`, None if the magnitude
    needs no gradient.

    Forward saves inner and the magnitude, or the magnitude alone. Backward is one launch for all
    gradients that are wanted. inner being an output, a graph of the backward pass leads back
    through it to lora and base, so that the node may be differentiated again.
    """

    @staticmethod
    def forward(ctx, lora, base, mag_norm_scale, scale, inplace):
        ctx.scale = scale
        ctx.base_dtype = base.dtype
        ctx.set_materialize_grads(False)
        out = lora if inplace else None
        inner = None
        if ctx.needs_input_grad[2]:
            out, inner = run.compose_inner(lora, base, mag_norm_scale, scale, out)
        else:
            out = run.compose(lora, base, mag_norm_scale, scale, out)
        ctx.save_for_backward(mag_norm_scale, inner)
        if inplace:
            ctx.mark_dirty(lora)
        return out, inner

    @staticmethod
    def backward(ctx, d_out, d_inner):
        gain, inner = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        d_lora = d_base = d_gain = None
        if d_out is not None:
            if _is_grad_enabled():  # the backward pass is to be differentiated itself
                d_lora, d_base, d_gain = differentiable_backward(d_out, inner, gain, ctx.scale,
                                                                 wanted[:3], ctx.base_dtype)
            else:
                d_lora, d_base, d_gain = run.backward(d_out, inner, gain, ctx.scale, wanted,
                                                      ctx.base_dtype)
        if d_inner is not None:
            d_lora, d_base = add_inner(d_lora, d_base, d_inner, ctx.scale, wanted, ctx.base_dtype)
        return d_lora, d_base, d_gain, None, None


def differentiable_backward(d_out, inner, gain, scale, wanted, base_dtype):
    """run.backward as a node of the graph; None where `wanted` is false."""
    results = iter(_ops.backward(d_out, inner if wanted[2] else None, gain, scale, list(wanted),
                                 base_dtype))
    return [next(results) if want else None for want in wanted]


def add_inner(d_lora, d_base, d_inner, scale, wanted, base_dtype):
    """Adds what flows back through inner = scale * lora + base."""
    if wanted[0]:
        term = scale * d_inner
        d_lora = term if d_lora is None else d_lora + term
    if wanted[1]:
        term = d_inner.to(base_dtype)
        d_base = term if d_base is None else d_base + term
    return d_lora, d_base
