"""Helpers of the operations' contenders."""

import torch

import dorajit_c

SCALE = 0.5


def views(sets):
    """The operand sets as DLTensors for dorajit. They do not keep the tensors alive."""
    return [[dorajit_c.view(tensor) for tensor in one] for one in sets]


def stream():
    """The current stream; during a capture this is the captured stream."""
    return torch.cuda.current_stream().cuda_stream


def compiled(function):
    """torch.compile for the exact shapes of the first call. The same function is compiled for every
    case; without the reset PyTorch would reach its recompilation limit and run it eagerly."""
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)
