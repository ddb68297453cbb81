"""What the operations' contenders share."""

import torch

import dorajit_c

SCALE = 0.5


def views(sets):
    """The operand sets for dorajit. They refer to the tensors' memory without keeping it."""
    return [[dorajit_c.view(tensor) for tensor in one] for one in sets]


def stream():
    """The current one, which during a capture is the captured one."""
    return torch.cuda.current_stream().cuda_stream


def compiled(function):
    """torch.compile for exactly the shapes of the first call. One function is compiled for every
    case; without the reset PyTorch would stop at its recompilation limit and run it eagerly."""
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)
