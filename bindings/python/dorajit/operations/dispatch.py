"""Whether a call runs in a kernel, in a kernel on other views of its tensors, or in plain PyTorch, and why.

A call is first passed to the native library. This module is used only if the library refuses it, so that
successful calls pay nothing for it.
"""

import typing

import torch

from dorajit import errors
from dorajit.control import state

_MOST_DIMS = 16  # the limit of the extension module's tensor reader
_KERNEL_TYPES = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.float64})
_DEVICES = ("cpu", "cuda") if torch.version.hip is None else ("cpu",)


class Dispatch(typing.NamedTuple):
    """How a call runs.

    Attributes:
        path: "native" or "torch"; of a layer, one of those of ModelDispatch.
        reason: the reason, as text.
    """

    path: str
    reason: str


class Plan(typing.NamedTuple):
    """The views that a kernel can take."""

    reason: typing.Optional[str] = None  # why no kernel takes the tensors; None if one does
    strides_only: bool = False           # a kernel takes contiguous copies
    changed: bool = False                # the views are not the tensors themselves
    operands: tuple = ()                 # inputs and outputs, None for those that are left out


def plan(operation, inputs, outputs=()):
    """The Plan of a call of the operation with these tensors, None for those that are left out. Operations with one shape
    and without channels take only contiguous tensors; where there are several shapes, matrices are rows of contiguous
    elements, and vectors are contiguous."""
    operands = operation.inputs + operation.outputs
    tensors = (*inputs, *outputs, *(None,) * (len(operation.outputs) - len(outputs)))
    given = {one.name: tensor for one, tensor in zip(operands, tensors) if tensor is not None}
    reason = next(filter(None, (unfit(name, tensor) for name, tensor in given.items())), None)
    if reason is None and len({tensor.dtype is torch.float64 for tensor in given.values()}) > 1:
        reason = "float64 operands are mixed with others"
    if reason is not None:
        return Plan(reason)
    if operation.has_one_shape and operation.has_channels:
        return _plan_views(operands, tensors)
    for one in operands:
        tensor = given.get(one.name)
        columns = 1 if len(one.dimensions) > 1 and not operation.has_one_shape else None
        if tensor is not None and not _flattens(tensor, columns):
            return Plan(_no_rows(one.name, tensor), strides_only=True)
    added = int(operation.has_one_shape and inputs[0].dim() == 0)
    return Plan(changed=added > 0, operands=tuple(_grown(one, added) for one in tensors))


def unfit(name, tensor):
    """The reason why no kernel takes the tensor, whatever its strides; or None."""
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"`{name}` is a {type(tensor).__name__}, which has its own __torch_dispatch__"
    if tensor.device.type not in _DEVICES:
        return f"`{name}` is on the device {tensor.device}, which has no kernels"
    if tensor.dtype not in _KERNEL_TYPES:
        return f"`{name}` has elements of {tensor.dtype}"
    if not _has_memory(tensor):
        return f"`{name}` has no memory, as inside torch.vmap"
    if tensor.is_neg():
        return f"`{name}` has a pending negation (resolve_neg() applies it)"
    if tensor.dim() > _MOST_DIMS:
        return f"`{name}` has more than {_MOST_DIMS} dimensions"
    return None


def _has_memory(tensor):
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True


def _plan_views(operands, tensors):
    matrices = {one.name: tensor for one, tensor in zip(operands, tensors)
                if not one.is_per_channel and tensor is not None}
    gain = next(tensor for one, tensor in zip(operands, tensors) if one.is_per_channel)
    dims = next(iter(matrices.values())).dim()
    added = max(2 - dims, 0)

    def along_channels(tensor):
        """A tensor with one element per channel, with as many dimensions as the views of matrices."""
        shape = (1,) * (dims + added - gain.dim()) + tuple(gain.shape[max(gain.dim() - dims - added, 0):])
        return over_channels(tensor, gain).reshape(shape).contiguous()

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
        columns = _column_dims(next(iter(turned.values())), wide.permute(*order))
        loose = next((name for name, one in turned.items() if not _flattens(one, columns)), None)
        reasons.append(loose and _no_rows(loose, turned[loose]))
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
    """The dimensions in the order of memory, largest stride first; finds channels_last."""
    return sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))


def _no_rows(name, tensor):
    return (f"`{name}` has strides {tensor.stride()} and shape {tuple(tensor.shape)}, which do not form rows of "
            "contiguous elements with a constant stride")


def _column_dims(matrix, gain):
    """How many dimensions, counted from the last, form the columns of a kernel's matrix."""
    channels = [dim for dim, size in enumerate(reversed(gain.shape)) if size != 1]
    axis = channels[0] if channels else int(matrix.shape[-1] != 1)
    return max(axis, 1)


def _flattens(tensor, column_dims=None):
    """Whether the tensor is a matrix with rows of contiguous elements and one stride between them.

    Args:
        column_dims: how many dimensions, counted from the last, form the columns; None: all.
    """
    if tensor.numel() == 0:
        return True
    dims = list(zip(tensor.shape, tensor.stride()))[::-1]
    column_dims = len(dims) if column_dims is None else min(column_dims, len(dims))
    columns = 1
    for size, stride in dims[:column_dims]:
        if size != 1 and stride != columns:
            return False
        columns *= size
    expected = None
    for size, stride in dims[column_dims:]:
        if size == 1:
            continue
        if stride != expected if expected is not None else stride < columns:
            return False
        expected = stride * size
    return True


def with_rows(tensor):
    """The tensor if its last dimension forms rows that a kernel takes, such as a gradient that PyTorch has expanded does
    not; else a contiguous copy."""
    return tensor if tensor.is_contiguous() or _flattens(tensor, 1) else tensor.contiguous()


def over_channels(tensor, gain):
    """The tensor in the gain's shape if it has as many elements, else unchanged."""
    return tensor.reshape(gain.shape) if tensor.numel() == gain.numel() else tensor


def require_native(function, reason):
    """Raises FallbackError inside `dorajit.force_native()`."""
    if state.forced:
        raise errors.FallbackError(f"{function}: would run in PyTorch: {reason}", errors.UNSUPPORTED)
