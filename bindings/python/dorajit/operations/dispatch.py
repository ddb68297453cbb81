"""Which way a call goes, and why: to a kernel, to a kernel over other views, or to plain PyTorch.

A call first asks the native library, which refuses what it cannot take. Only then is anything here
consulted, so that calls that succeed pay nothing for it.
"""

import typing
import warnings

import torch

from dorajit import checks, errors
from dorajit.control import state

_MOST_DIMS = 16  # of the extension's tensor reader
_KERNEL_TYPES = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.float64})
_DEVICES = ("cpu", "cuda") if torch.version.hip is None else ("cpu",)
_REFUSED = (errors.InvalidArgumentError, errors.UnsupportedError, errors.WrongDeviceError)
_MISSING = (errors.NoDriverError, errors.NoCompilerError)


class Dispatch(typing.NamedTuple):
    """How a call runs.

    Attributes:
        path: "native" or "torch".
        reason: why, in words.
    """

    path: str
    reason: str


class Plan(typing.NamedTuple):
    """What a kernel would be given."""

    reason: typing.Optional[str] = None  # why no kernel will do
    strides_only: bool = False           # compact copies would do
    changed: bool = False                # the views are not the tensors themselves
    operands: tuple = ()                 # inputs and outputs, None for those that are left out


def plan(operation, inputs, outputs=()):
    """How a kernel could serve a call of the operation with these tensors, None for those that are left
    out. Operations without channels take contiguous ones."""
    operands = operation.inputs + operation.outputs
    tensors = (*inputs, *outputs, *(None,) * (len(operation.outputs) - len(outputs)))
    given = {one.name: tensor for one, tensor in zip(operands, tensors) if tensor is not None}
    reason = next(filter(None, (unfit(name, tensor) for name, tensor in given.items())), None)
    if reason is None and len({tensor.dtype is torch.float64 for tensor in given.values()}) > 1:
        reason = "float64 operands are mixed with others"
    if reason is not None:
        return Plan(reason)
    if not operation.has_one_shape:
        return _plan_rows(operands, tensors)
    if operation.has_channels:
        return _plan_views(operands, tensors)
    loose = next((name for name, one in given.items() if not one.is_contiguous()), None)
    added = int(inputs[0].dim() == 0)
    return Plan(loose and f"`{loose}` is not contiguous", loose is not None, added > 0,
                tuple(_grown(one, added) for one in tensors))


def unfit(name, tensor):
    """Why no kernel takes the tensor whatever its strides, or None."""
    if tensor.layout is not torch.strided:
        return f"`{name}` has the layout {tensor.layout}"
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"`{name}` is a {type(tensor).__name__}, which does its own dispatch"
    if tensor.device.type not in _DEVICES:
        return f"`{name}` is on the device {tensor.device}, which has no kernels"
    if tensor.dtype not in _KERNEL_TYPES:
        return f"`{name}` has elements of {tensor.dtype}"
    if not _has_memory(tensor):
        return f"`{name}` has no memory of its own, as inside torch.vmap"
    if tensor._is_zerotensor():
        return f"`{name}` is zeros that were never written"
    if tensor.is_neg():
        return f"`{name}` has a negation that was put off (resolve_neg() does it)"
    if tensor.dim() > _MOST_DIMS:
        return f"`{name}` has more than {_MOST_DIMS} dimensions"
    return None


def _has_memory(tensor):
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True


def _plan_rows(operands, tensors):
    """Of operands of several shapes, whose last dimension is a row and whose vectors are one row."""
    for operand, tensor in zip(operands, tensors):
        if tensor is None:
            continue
        is_fit = (_flattens(tensor, min(tensor.dim(), 1)) if len(operand.dimensions) > 1
                  else tensor.is_contiguous())
        if not is_fit:
            return Plan(f"`{operand.name}` has strides {tensor.stride()} over the shape "
                        f"{tuple(tensor.shape)}, which are no rows of contiguous elements a constant stride "
                        "apart", strides_only=True)
    return Plan(operands=tuple(tensors))


def _plan_views(operands, tensors):
    matrices = {one.name: tensor for one, tensor in zip(operands, tensors)
                if not one.is_per_channel and tensor is not None}
    gain = next(tensor for one, tensor in zip(operands, tensors) if one.is_per_channel)
    dims = next(iter(matrices.values())).dim()
    added = max(2 - dims, 0)

    def along_channels(tensor):
        """A tensor of one element per channel, with as many dimensions as the views of matrices."""
        beside = over_channels(tensor, gain)
        wide = beside.reshape((1,) * (dims - gain.dim()) + tuple(gain.shape[max(gain.dim() - dims, 0):]))
        wide = _grown(wide, added)
        return wide if wide.is_contiguous() else wide.contiguous()

    wide = along_channels(gain)
    if sum(size != 1 for size in wide.shape) > 1:
        return Plan("`gain` varies along more than one dimension")
    per_channel = [tensor for one, tensor in zip(operands, tensors)
                   if one.is_per_channel and tensor is not None]
    is_new = (any(one.shape != gain.shape or along_channels(one).data_ptr() != one.data_ptr()
                  for one in per_channel) or (gain.dim() <= 1 and gain.numel() == 1))
    views = {name: _grown(tensor, added) for name, tensor in matrices.items()}
    in_order = list(range(wide.dim()))
    reasons = []
    for order in (in_order, _memory_order(next(iter(views.values())))):
        turned = {name: tensor.permute(*order) for name, tensor in views.items()}
        reasons.append(_loose(turned, wide.permute(*order)))
        if reasons[-1] is None:
            return Plan(changed=added > 0 or is_new or order != in_order, operands=tuple(
                None if tensor is None else
                turned[one.name] if not one.is_per_channel else along_channels(tensor).permute(*order)
                for one, tensor in zip(operands, tensors)))
    return Plan(reasons[0], strides_only=True)


def _grown(tensor, dims):
    for _ in range(dims if tensor is not None else 0):
        tensor = tensor.unsqueeze(0)
    return tensor


def _memory_order(tensor):
    """The dimensions from the farthest apart in memory to the nearest, as for channels_last."""
    return sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))


def _loose(matrices, gain):
    """Which matrix has no rows a constant stride apart, or None."""
    columns = _column_dims(next(iter(matrices.values())), gain)
    for name, tensor in matrices.items():
        if not _flattens(tensor, columns):
            return (f"`{name}` has strides {tensor.stride()} over the shape {tuple(tensor.shape)}, "
                    "which are no rows of contiguous elements a constant stride apart")
    return None


def _column_dims(matrix, gain):
    """How many dimensions, from the last, are the columns of a kernel's matrix."""
    channels = [dim for dim, size in enumerate(reversed(gain.shape)) if size != 1]
    axis = channels[0] if channels else int(matrix.shape[-1] != 1)
    return max(axis, 1)


def _flattens(tensor, column_dims):
    if tensor.numel() == 0:
        return True
    dims = [(size, stride) for size, stride in zip(tensor.shape, tensor.stride())]
    columns = 1
    for size, stride in reversed(dims[len(dims) - column_dims:]):
        if size != 1 and stride != columns:
            return False
        columns *= size
    expected = None
    for size, stride in reversed(dims[:len(dims) - column_dims]):
        if size == 1:
            continue
        if stride != expected if expected is not None else stride < columns:
            return False
        expected = stride * size
    return True


def retry(error, operation, inputs, outputs):
    """What to do after the native library refused a call with these tensors, which are valid.

    Returns:
        A Plan: views that a kernel takes, if its reason is None; else why PyTorch is to do it.

    Raises:
        The error, if the tensors are such as a kernel takes, so that it is about something else.
    """
    if isinstance(error, _MISSING):
        warnings.warn(f"{error}. Until then this runs in PyTorch.", RuntimeWarning, stacklevel=6)
        return Plan(str(error))
    if not isinstance(error, _REFUSED):
        raise error
    answer = plan(operation, inputs, outputs)
    if answer.reason is None and not answer.changed:
        raise error
    return answer


def over_channels(tensor, gain):
    """The tensor in the gain's shape, if it has as many elements."""
    return tensor.reshape(gain.shape) if tensor.numel() == gain.numel() else tensor


def require_native(function, answer):
    """Raises FallbackError inside `dorajit.force_native()`."""
    if state.forced:
        raise errors.FallbackError(f"{function}: would run in PyTorch: {answer.reason}",
                                   errors.UNSUPPORTED)


def explain(operation, inputs, why_expression):
    """The way that a call of the operation with these inputs takes; see explain_dispatch. `why_expression`
    gives the reason for PyTorch's own operations whatever kernels could do, or None."""
    checks.operands(operation.name, operation, inputs)
    reason = why_expression()
    if reason is not None:
        return Dispatch("torch", reason)
    answer = plan(operation, inputs)
    if answer.reason is None:
        return Dispatch("native", "a kernel takes other views of the tensors" if answer.changed
                        else "a kernel takes the tensors as they are")
    if operation.makes_gradients and answer.strides_only:
        return Dispatch("native", f"a kernel takes compact copies: {answer.reason}")
    return Dispatch("torch", answer.reason)
