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
RETRIED = (errors.InvalidArgumentError, errors.UnsupportedError, errors.WrongDeviceError)
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
    matrices: tuple = ()
    gain: typing.Optional[torch.Tensor] = None


def plan(matrices, gain=None):
    """How a kernel could serve these tensors.

    Args:
        matrices: name -> tensor, all of one shape; None for those that are left out.
        gain: one element per channel; None for operations without one, whose tensors must be
            contiguous.
    """
    given = {name: tensor for name, tensor in matrices.items() if tensor is not None}
    named = given if gain is None else {**given, "mag_norm_scale": gain}
    reason = next(filter(None, (unfit(name, tensor) for name, tensor in named.items())), None)
    if reason is None and len({tensor.dtype is torch.float64 for tensor in named.values()}) > 1:
        reason = "float64 operands are mixed with others"
    if reason is not None:
        return Plan(reason)
    if gain is None:
        loose = next((name for name, one in given.items() if not one.is_contiguous()), None)
        added = int(next(iter(given.values())).dim() == 0)
        return Plan(loose and f"`{loose}` is not contiguous", loose is not None, added > 0,
                    tuple(_grown(one, added) for one in given.values()))
    return _plan_views(matrices, given, gain)


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


def _plan_views(matrices, given, gain):
    dims = next(iter(given.values())).dim()
    wide = gain.reshape((1,) * (dims - gain.dim()) + tuple(gain.shape[max(gain.dim() - dims, 0):]))
    added = max(2 - dims, 0)
    if sum(size != 1 for size in wide.shape) > 1:
        return Plan("`mag_norm_scale` varies along more than one dimension")
    views = {name: _grown(tensor, added) for name, tensor in matrices.items()}
    wide = _grown(wide, added)
    wide = wide if wide.is_contiguous() else wide.contiguous()
    is_new = wide.data_ptr() != gain.data_ptr() or (gain.dim() <= 1 and gain.numel() == 1)
    in_order = list(range(wide.dim()))
    reasons = []
    for order in (in_order, _memory_order(views[next(iter(given))])):
        turned = {name: tensor.permute(*order) for name, tensor in views.items()
                  if tensor is not None}
        turned_gain = wide.permute(*order)
        reasons.append(_loose(turned, turned_gain))
        if reasons[-1] is None:
            changed = added > 0 or is_new or order != in_order
            return Plan(changed=changed, matrices=tuple(map(turned.get, matrices)),
                        gain=turned_gain)
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


def retry(error, matrices, gain=None):
    """What to do after the native library refused a call with these tensors, which are valid.

    Returns:
        A Plan: views that a kernel takes, if its reason is None; else why PyTorch is to do it.

    Raises:
        The error, if the tensors are such as a kernel takes, so that it is about something else.
    """
    if isinstance(error, _MISSING):
        warnings.warn(f"{error}. Until then this runs in PyTorch.", RuntimeWarning, stacklevel=4)
        answer = Plan(str(error))
    elif isinstance(error, RETRIED):
        answer = plan(matrices, gain)
        if answer.reason is None and not answer.changed:
            raise error
    else:
        raise error
    return answer


def over_channels(bias, gain):
    """The bias in the gain's shape, if it has as many elements."""
    return bias.reshape(gain.shape) if bias.numel() == gain.numel() else bias


def plan_bias(matrices, gain, bias):
    """A Plan, whose `gain` is the bias as a kernel takes it beside the gain."""
    reason = unfit("bias", bias)
    if reason is not None:
        return Plan(reason)
    answer = plan(matrices, over_channels(bias, gain).contiguous())
    if answer.reason is not None:
        answer = answer._replace(reason=answer.reason.replace("mag_norm_scale", "bias"))
    return answer


def retry_with_bias(error, matrices, gain, bias):
    """As retry, of an operation with a bias or None: a Plan, and the bias that goes with it."""
    if bias is None:
        return retry(error, matrices, gain), None
    biased = plan_bias(matrices, gain, bias)
    if biased.reason is not None:
        return biased, None
    # Where the bias was all that was wrong, the rest fits as it is.
    is_changed = bias.shape != gain.shape or not bias.is_contiguous()
    answer = (plan(matrices, gain) if is_changed and isinstance(error, RETRIED)
              else retry(error, matrices, gain))
    return answer, biased.gain


def require_native(operation, answer):
    """Raises FallbackError inside `dorajit.force_native()`."""
    if state.forced:
        raise errors.FallbackError(f"{operation}: would run in PyTorch: {answer.reason}",
                                   errors.UNSUPPORTED)


def explain(operation, tensors, why_plain):
    """The way that a call of the operation with these tensors takes; see explain_dispatch. `why_plain`
    gives the reason for PyTorch's own operations whatever kernels could do, or None."""
    matrices, gain, is_backward = dict(tensors), None, False
    if operation == "norm_assembly":
        checks.norm_assembly(operation, *matrices.values())
    else:
        gain = matrices.pop("mag_norm_scale")
        is_backward = "d_out" in matrices
        if is_backward:
            checks.backward(operation, *matrices.values(), gain)
        elif "result" in matrices:
            checks.compose_residual(operation, *matrices.values(), gain, None)
        else:
            checks.compose(operation, *matrices.values(), gain)
    reason = why_plain()
    if reason is not None:
        return Dispatch("torch", reason)
    if not state.enabled:
        return Dispatch("torch", "kernels are switched off (PEFT_DORA_FUSED=0 or "
                                 "dorajit.disabled())")
    if (operation in ("compose", "compose_inner", "compose_residual") and not state.fused_backward
            and torch.is_grad_enabled() and any(one.requires_grad for one in tensors.values())):
        return Dispatch("torch", "a graph is built, and that of the kernels is switched off "
                                 "(PEFT_DORA_FUSED_BACKWARD=0)")
    answer = plan(matrices, gain)
    if answer.reason is None:
        return Dispatch("native", "a kernel takes other views of the tensors" if answer.changed
                        else "a kernel takes the tensors as they are")
    if is_backward and answer.strides_only:
        return Dispatch("native", f"a kernel takes compact copies: {answer.reason}")
    return Dispatch("torch", answer.reason)
