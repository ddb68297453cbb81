"""Dropout of a layer's input, with the mask that torch.nn.Dropout draws.

A node saves x and the mask, one byte an element, and computes the dropped-out input again in its backward pass: layers
that share an input share x.
"""

from typing import NamedTuple

import torch

from dorajit.control import state
from dorajit.layers import plain_linear

_Dropout = torch.nn.Dropout
_drop = torch.native_dropout
_scale_by_mask = torch.ops.aten.native_dropout_backward


class Dropout(NamedTuple):
    """Active dropout of a layer.

    Attributes:
        p: the probability, 0 < p < 1.
        dtype: the element type in which torch.nn.Dropout would get x.
        drops_base: whether the base product's share of the delta has the dropped-out input, too, as in PEFT; otherwise
            only the input of A is dropped.
    """

    p: float
    dtype: torch.dtype
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
                and (module.p == 0 or not module.training) and not plain_linear.has_own_call(module))


def of_module(module, dtype):
    """The Dropout of an active torch.nn.Dropout that gets elements of this type; a text that tells why not for other
    modules, and for probabilities of 0 and 1."""
    if (type(module) is not _Dropout or module.inplace or not module.training or not 0 < module.p < 1
            or plain_linear.has_own_call(module)):
        return "lora_dropout is not a plain torch.nn.Dropout in training mode with 0 < p < 1"
    return Dropout(module.p, dtype, state.dropout == "peft")
