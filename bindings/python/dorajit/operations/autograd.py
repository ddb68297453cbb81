"""Autograd nodes of the compositions for eager calls: compose, and compose added to a base result.

The outputs of a node are the result and `inner = scale * lora + base`, which is None if the magnitude needs no
gradient. Forward saves inner and the magnitude, or only the magnitude. Backward is one launch for all
wanted gradients. Because inner is an output, the graph of a backward pass leads through it
to lora and base, so that a node can be differentiated twice.
"""

import torch

from dorajit.operations import compositions, expression, run
from dorajit.control import state
from dorajit.operations.eligibility import NOBODY, SOMEBODY, is_compiling
from dorajit.operations.table import operations


def _backward_pass(operation):
    """The function that computes the gradients through out: (inputs, scale, wanted, types) -> gradients. Inputs that
    only the sum reads are None without it. It asks again who observes the call, because modes and transforms may be
    active in the backward pass that were not in the forward pass."""
    at_once, places = operation.at_once, expression.places_of_types(operation)

    def backward(inputs, scale, wanted, types):
        made = SOMEBODY
        if state.enabled and not is_compiling():
            outputs = [types[place - 1] if want and place else want for place, want in zip(places, wanted)]
            made = at_once(*inputs, *outputs, scale)
            if type(made) is not int:
                return made
        more = tuple(wanted[:3]), *types
        if made == NOBODY:
            return run.outputs(operation, inputs, (scale,), more)
        with torch._C.DisableTorchFunctionSubclass():  # as in PyTorch's own backward passes
            return run.observed(operation.name, operation, inputs, scale, more)
    return backward


# Name of a backward operation -> the function that computes it.
backward_passes = {name: _backward_pass(operations[name]) for name in {
    one.backward for one in expression.formulas.values() if one.backward is not None}}
backward, residual_backward = backward_passes["backward"], backward_passes["residual_backward"]
magnitude_backward = _backward_pass(operations["magnitude_backward"])


class _Node(torch.autograd.Function):
    """The node of compositions.compose, or of compose_residual, whose bias is a constant."""

    @staticmethod
    def forward(ctx, lora, base, gain, scale, bias, is_residual, inplace):
        ctx.scale, ctx.is_residual = scale, is_residual
        ctx.types = (lora.dtype, base.dtype) if is_residual else (base.dtype,)
        ctx.set_materialize_grads(False)
        keeps_inner = ctx.needs_input_grad[2]
        if is_residual:
            out, inner = compositions.compose_residual(lora, base, gain, bias, scale, keeps_inner)
        else:
            out, inner = compositions.compose(lora, base, gain, scale, keeps_inner, lora if inplace else None)
        ctx.save_for_backward(gain, inner)
        if inplace:
            ctx.mark_dirty(lora)
        return out, inner

    @staticmethod
    def backward(ctx, d_out, d_inner):
        through_out = residual_backward if ctx.is_residual else backward
        return *gradients(ctx, *ctx.saved_tensors, d_out, d_inner, through_out), None, None, None, None


# The function that torch.autograd.Function.apply calls when no transform is active; calling it directly is faster.
_apply = super(torch.autograd.Function, _Node).apply


def compose(lora, base, gain, scale, inplace=False):
    """compositions.compose as a node, into a new tensor or into lora's memory."""
    if not inplace:
        return _apply(lora, base, gain, scale, None, False, False)[0]
    if lora.is_leaf and lora.requires_grad:
        raise RuntimeError("fused_dora_compose: argument `lora` is a leaf that requires grad, which "
                           "may not be written in place; pass inplace=False")
    if lora._is_view() or lora.is_inference():  # copy_ checks whether these may be written
        return lora.copy_(compose(lora, base, gain, scale))
    return _apply(lora, base, gain, scale, None, False, True)[0]


def compose_residual(lora, result, gain, bias, scale):
    """compositions.compose_residual as a node."""
    return _apply(lora, result, gain, scale, bias, True, False)[0]


def gradients(ctx, gain, inner, d_out, d_inner, through_out):
    """The gradients of lora, the base result and the magnitude, None where none is needed. `through_out`, one of
    backward_passes, computes the part that comes through out. `inner` and the gradients of the outputs may be None."""
    wanted = ctx.needs_input_grad
    d_lora = d_base = d_gain = None
    if d_out is not None:
        d_lora, d_base, d_gain = through_out((d_out, inner if wanted[2] else None, gain), ctx.scale, wanted, ctx.types)
    if d_inner is not None:  # through inner = scale * lora + base
        if wanted[0]:
            term = ctx.scale * d_inner
            d_lora = term if d_lora is None else d_lora + term
        if wanted[1]:
            term = d_inner.to(ctx.types[-1])
            d_base = term if d_base is None else d_base + term
    return d_lora, d_base, d_gain
