"""What tells whether weights are what they were, for what is made of them and kept."""

import torch

from dorajit import _native


def key(operands, scale):
    """What differs if the scale, the stream or an element does, as far as PyTorch counts writes; None where nothing
    is to be kept: for tensors that do not tell, and while a CUDA graph is captured, whose replays see other weights.

    A key contains addresses, which an allocator uses again: a caller that must not take a new tensor for an old one
    keeps the operands alive.
    """
    state = _native.tensor_state(*operands) or _slow_state(operands)
    if state is None:
        return None
    stream = 0
    first = operands[0]
    if first.is_cuda:
        if torch.cuda.is_current_stream_capturing():
            return None
        stream = torch._C._cuda_getCurrentRawStream(first.device.index)
    return scale, stream, state


def _slow_state(operands):
    """That of tensors of any type and class, as those of quantized weights."""
    state = []
    for one in operands:
        if (one.is_inference() or torch._C._functorch.is_functorch_wrapped_tensor(one)
                or type(one).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
                or one.layout is not torch.strided):
            return None
        state += one._version, one.data_ptr(), one.dtype, one.device, one.shape, one.stride()
    return tuple(state)
