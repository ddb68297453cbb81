"""The composition, by itself and over a base result, as nodes of autograd's graph for eager calls.

A node's outputs are the result and `inner = scale * lora + base`, None if the magnitude needs no
gradient. Forward saves inner and the magnitude, or the magnitude alone. Backward is one launch for all
gradients that are wanted. inner being an output, a graph of the backward pass leads back through it
to lora and base, so that a node may be differentiated again.
"""

import torch

from dorajit import run

_ops = torch.ops.dorajit
_is_grad_enabled = torch.is_grad_enabled


def differentiable(name):
    """The operator of that name, a node of the graph itself, with the signature of run's function."""
    def backward(d_out, inner, gain, scale, wanted, *types):
        results = iter(getattr(_ops, name)(d_out, inner if wanted[2] else None, gain, scale,
                                           list(wanted[:3]), *types))
        return [next(results) if want else None for want in wanted[:3]]
    return backward


_differentiable_backward = differentiable("backward")
_differentiable_residual_backward = differentiable("residual_backward")


class Compose(torch.autograd.Function):
    """Of run.compose and run.compose_inner."""

    @staticmethod
    def forward(ctx, lora, base, mag_norm_scale, scale, inplace):
        ctx.scale = scale
        ctx.types = (base.dtype,)
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
        backward = _differentiable_backward if _is_grad_enabled() else run.backward
        return *gradients(ctx, d_out, d_inner, backward), None, None


class ComposeResidual(torch.autograd.Function):
    """Of run.compose_residual, of which the bias is a constant."""

    @staticmethod
    def forward(ctx, lora, result, mag_norm_scale, bias, scale):
        ctx.scale = scale
        ctx.types = lora.dtype, result.dtype
        ctx.set_materialize_grads(False)
        out, inner = run.compose_residual(lora, result, mag_norm_scale, bias, scale,
                                          ctx.needs_input_grad[2])
        ctx.save_for_backward(mag_norm_scale, inner)
        return out, inner

    @staticmethod
    def backward(ctx, d_out, d_inner):
        backward = (_differentiable_residual_backward if _is_grad_enabled()
                    else run.residual_backward)
        return *gradients(ctx, d_out, d_inner, backward), None, None


def gradients(ctx, d_out, d_inner, backward):
    """The gradients for lora, the base result and the magnitude, None where none is needed.

    `ctx` has the magnitude and inner saved, and what else `backward` takes, which computes what comes
    through out. d_out and d_inner may be None.
    """
    gain, inner = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    d_lora = d_base = d_gain = None
    if d_out is not None:
        d_lora, d_base, d_gain = backward(d_out, inner, gain, ctx.scale, wanted, *ctx.types)
    if d_inner is not None:  # through inner = scale * lora + base
        if wanted[0]:
            term = ctx.scale * d_inner
            d_lora = term if d_lora is None else d_lora + term
        if wanted[1]:
            term = d_inner.to(ctx.types[-1])
            d_base = term if d_base is None else d_base + term
    return d_lora, d_base, d_gain
