"""The gradient of the magnitude from a layer's output instead of inner, a matrix of the output's size.

Without a bias out = g * inner, up to one rounding, so that (sum of inner * d_out) / divisor is
(sum of out * d_out) / magnitude. An activation function after the layer saves its input, which is out, so that the two
nodes share one matrix. The node derives nothing from an output that was written after the forward pass: it computes
inner again. It recognises writes that PyTorch counts by the version counter, and kernels that write the gradient of an
activation over its input, as Liger's do, by the gradient's memory. It cannot recognise other writes, so the user has to
switch this on.
"""

import torch
import torch.nn.functional as F

from dorajit.norms import precision
from dorajit.operations.eligibility import is_compiling

_MAGNITUDES = torch.float32, torch.bfloat16, torch.float64  # whose least normal number changes no other if added
_is_alias = torch._C._is_alias_of


def serves(x, dtype, weight, bias, magnitude, others):
    """Whether the node may save its output instead of inner. Only a layer with more outputs than inputs does: an
    activation function follows most of these, and few others.

    Args:
        dtype: the element type of the low-rank result.
        others: x and the factors. The gradient of any of them makes the node save x, from which inner is computed
            again.
    """
    return (bias is None and x.dtype is dtype and weight.shape[0] > weight.shape[1]
            and magnitude.dtype in _MAGNITUDES and magnitude.requires_grad
            and any(one.requires_grad for one in others))


def divisor(magnitude, like):
    """By what the sum of out * d_out is divided, in the type of `like`: the magnitude, and for a magnitude of 0, whose
    sum is 0, a number that is not 0."""
    return torch.add(magnitude.detach(), torch.finfo(magnitude.dtype).tiny, out=torch.empty_like(like))


class Watch:
    """Tells whether an output was written, without keeping its elements alive."""

    __slots__ = "_counter", "_version"

    def __init__(self, tensor):
        self._counter = tensor.detach()  # shares the version counter
        self._counter.data = tensor.new_empty(0)
        self._version = tensor._version

    def is_written(self, output, d_out):
        """Whether the output does not have the elements of the forward pass any longer; called in each backward pass."""
        if is_compiling():  # traced tensors have other versions
            return True
        if _is_alias(output, d_out):  # the gradient was written over it, and stays there for further passes
            self._version = None
        return self._counter._version != self._version


def inner(x, weight, a, b, scale):
    """inner, computed again: without autograd, and in the element types of the operands."""
    with torch.no_grad(), precision.without_autocast(x.device.type):
        return torch.add(F.linear(x, weight), F.linear(F.linear(x, a), b), alpha=scale)
