"""Dropout of a layer's input, with the mask that torch.nn.Dropout draws; and the composition for a dropped-out input, for
which the base layer has not computed a base result.

A node saves x and the mask, one byte an element, and computes the dropped-out input again in its backward pass: layers
that share an input share x. Outside of nodes the base result x W^T is computed in slices of output columns, so that only
one slice of it is in memory at a time, forward and backward.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from dorajit import control
from dorajit.layers import modules
from dorajit.norms import precision
from dorajit.operations import api, autograd, compositions, eligibility

_Dropout = torch.nn.Dropout
_drop = torch.native_dropout
_scale_by_mask = torch.ops.aten.native_dropout_backward
_ALIGNED = 64  # columns of a slice


class Dropout(NamedTuple):
    """Active dropout of a layer."""

    p: float            # the probability, 0 < p < 1
    dtype: torch.dtype  # the element type in which torch.nn.Dropout would get x
    # Whether the base product's share of the delta has the dropped-out input, too, as in PEFT, and not only the input of A.
    drops_base: bool

    def draw(self, x, dtype):
        """(x after dropout in an element type, mask). The generator advances as in torch.nn.Dropout.

        On a GPU the mask depends on the element type. PEFT's meaning takes the type that PEFT drops, so that masks are
        equal; the other one that of the result, which reads and writes less.
        """
        if x.is_cuda:
            dropped, mask = _drop(x.to(self.dtype if self.drops_base else dtype), self.p, True)
            return dropped.to(dtype), mask
        noise = torch.empty_like(x, dtype=self.dtype).bernoulli_(1 - self.p)
        mask = noise.bool()
        return noise.div_(1 - self.p).mul_(x).to(dtype), mask

    def again(self, x, mask, dtype):
        """The result of `draw` for its mask."""
        if x.is_cuda:
            return _scale_by_mask(x.to(dtype), mask, 1 / (1 - self.p))
        return (mask.to(self.dtype).div_(1 - self.p) * x).to(dtype)  # x may be a batch of gradients

    def add(self, into, term, mask, factor=1.0):
        """into += factor * dropout(term), in place."""
        if into.is_cuda:
            return into.addcmul_(term, mask, value=factor / (1 - self.p))
        return into.add_(self.again(term, mask, into.dtype), alpha=factor)


def drops(module):
    """Whether a dropout module of a layer in training mode is more than an identity. Trainers that want no dropout, such as
    TRL's DPOTrainer, set the probability to 0."""
    return not (isinstance(module, torch.nn.Identity) or type(module) is _Dropout
                and (module.p == 0 or not module.training) and not modules.has_own_call(module))


def of_module(module, dtype):
    """The Dropout of an active torch.nn.Dropout that gets elements of this type; a text that tells why not for other
    modules, and for probabilities of 0 and 1."""
    if (type(module) is not _Dropout or module.inplace or not module.training or not 0 < module.p < 1
            or modules.has_own_call(module)):
        return "lora_dropout is not a plain torch.nn.Dropout in training mode with 0 < p < 1"
    return Dropout(module.p, dtype, control.state.dropout == "peft")


def columns_at_once(rows, out, element_bytes, budget):
    """The number of output columns of a base result, [rows, out], that fit the budget in bytes: a multiple of 64, or all."""
    fitting = budget // max(rows * element_bytes, 1)
    return out if fitting >= out else min(max(fitting // _ALIGNED, 1) * _ALIGNED, out)


def delta(x, weight, lora, gain, scale):
    """(gain - 1) * base + gain * scale * lora with the base result x @ weight.T: the term that a layer adds to its own base
    result. `x` is the input after dropout, the gain may have any shape. With PEFT_DORA_FUSED_BACKWARD=0 the graph is that
    of PyTorch's operations, and the base result is not sliced; neither is it if the weight requires grad."""
    gain = gain.reshape(-1)
    if not torch.is_grad_enabled():
        gain = gain.detach()  # so that nothing is saved for a backward pass
    at_once = weight.shape[0]
    # A tracer cannot read the budget.
    if control.state.fused_backward and not (weight.requires_grad or eligibility.is_observed()):
        rows = lora.numel() // max(lora.shape[-1], 1)
        at_once = columns_at_once(rows, at_once, lora.element_size(), control.get_dora_forward_threshold_bytes())
    if at_once >= weight.shape[0]:
        return api.fused_dora_compose_autograd(lora, F.linear(x, weight.to(x.dtype)), gain, scale)
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
            _, kept = compositions.compose(lora[..., columns], base, gain[columns], scale, inner is not None,
                                           out[..., columns])
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
            to_lora, to_base, to_gain = autograd.backward((part, kept if needs[3] else None, gain[columns]), ctx.scale,
                                                          (needs[2], needs[0], needs[3]), (ctx.x_dtype,))
            if needs[0]:
                d_x.view(-1, d_x.shape[-1]).addmm_(to_base.reshape(-1, to_base.shape[-1]), weight[columns].to(x.dtype))
            if needs[2]:
                d_lora[..., columns] = to_lora
            if needs[3]:
                d_gain[columns] = to_gain
        return d_x, None, d_lora, d_gain, None, None


def _slices(out, at_once):
    return (slice(start, min(start + at_once, out)) for start in range(0, out, at_once))
