"""Keys that change when weights change, for values that are cached until then."""

import torch

from dorajit import _native


def key(operands, scale):
    """A key that changes with the scale, the stream and each write to an operand that PyTorch counts. None if nothing
    may be cached: for tensors without a version, and during CUDA graph capture, because replays may use other weights.

    A key contains addresses, which an allocator may reuse: a caller that must not confuse a new tensor with an old
    one has to keep the operands alive.
    """
    state = _native.tensor_state(*operands) or _slow_state(operands)
    if state is None:
        return None
    stream = 0
    first = operands[0]
    if first.is_cuda:
        if torch._C._cuda_isCurrentStreamCapturing():
            return None
        stream = torch._C._cuda_getCurrentRawStream(first.device.index)
    return scale, stream, state


def _slow_state(operands):
    """The state of tensors of any type and class, such as quantized weights."""
    state = []
    for one in operands:
        if (one.is_inference() or torch._C._functorch.is_functorch_wrapped_tensor(one)
                or type(one).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
                or one.layout is not torch.strided):
            return None
        state += one._version, one.data_ptr(), one.dtype, one.device, one.shape, one.stride()
    return tuple(state)
