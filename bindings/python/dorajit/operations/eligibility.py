"""Whether a call launches its kernel, and why not (docs/python.md, "Routes").

A call with plain tensors that nothing observes launches its kernel, in an autograd node where a graph is built. Any
other call is an operator of torch.library, or where no operator can be, PyTorch's own operations (why_expression). Tensors
are first passed to the native library; if it refuses them, `plan` finds other views that a kernel takes, or the reason why
the call runs in PyTorch. So successful calls pay nothing for it.
"""

import sys
import typing

import torch
from torch.autograd import forward_ad as _forward_ad

from dorajit import _native, checks, errors
from dorajit.control import state
from dorajit.distributed import gather
from dorajit.operations import expression, recording

_MOST_DIMS = 16  # the limit of the extension module's tensor reader
_KERNEL_TYPES = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.float64})
_DEVICES = ("cpu", "cuda") if torch.version.hip is None else ("cpu",)

is_compiling = torch.compiler.is_compiling
_is_jit_tracing = torch._C._is_tracing
_transform_level = torch._C._functorch.maybe_current_level
_is_batch = torch._C._functorch.is_legacy_batchedtensor  # of autograd.grad(is_grads_batched=True)

# The observer of a call with these tensors and this scale, outside of torch.compile. NOBODY: the call is one
# launch and nothing else. AUTOGRAD: only autograd observes it, so it may be a node. SOMEBODY: another observer,
# or arguments that are not plain tensors and a float.
who_sees = _native.who_sees
SOMEBODY, NOBODY, AUTOGRAD = range(3)


def is_observed():
    """Whether a compiler, a tracer, a mode (make_fx, selective checkpointing) or a torch.func transform observes
    single operations. It would not see a direct kernel launch or a write into a part of a tensor; it does see
    an operator of torch.library."""
    return is_compiling() or _native.is_observed()


def builds_graph(*operands):
    """Whether autograd records a call with these operands; operands that are not tensors are ignored."""
    if torch.is_grad_enabled():
        for one in operands:  # faster than any() of a generator
            if isinstance(one, torch.Tensor) and one.requires_grad:
                return True
    return False


def _has_transform():
    return _transform_level() is not None


# The effect of torch.compiler.assume_constant_result, which would import the whole compiler. The traced answer
# stays valid, because a compiled function is guarded by the transforms around it.
_has_transform._dynamo_marked_constant = True


def _is_onnx_exporting():
    flags = sys.modules.get("torch.onnx._internal.exporter._flags")  # what torch.onnx.is_in_onnx_export() reads
    return flags is not None and flags._is_onnx_exporting


_is_onnx_exporting._dynamo_marked_constant = True


def why_expression(*tensors):
    """The reason, as text, why a call with these tensors that is observed must run in PyTorch's own operations; None if
    it can be an operator."""
    is_traced = is_compiling()
    if _has_transform() or _forward_ad._current_level >= 0 or (
            not is_traced and any(_is_batch(one) for one in tensors if isinstance(one, torch.Tensor))):
        return "a transform of torch.func or forward-mode differentiation is active"
    if is_traced and _is_onnx_exporting():
        return "torch.onnx.export records the call, for programs that run without dorajit"
    if any(map(gather.is_dtensor, tensors)):
        return "an operand is a DTensor"
    if not is_traced and _is_jit_tracing():
        return "torch.jit.trace or an exporter that uses it records the call, for programs that may run without dorajit"
    return None


def why_switched_off(*tensors):
    """The reason, as text, why a switch makes a composition of these tensors run in PyTorch; or None."""
    if not state.enabled:
        return "kernels are switched off (PEFT_DORA_FUSED=0 or dorajit.disabled())"
    if not state.fused_backward and builds_graph(*tensors):
        return "a graph is built, and that of the kernels is switched off (PEFT_DORA_FUSED_BACKWARD=0)"
    return None


def why_torch(operation, tensors):
    """The reason, as text, why a call of the operation with these tensors that is observed, or while a switch is off, runs
    in PyTorch's own operations; None if it can be an operator."""
    return why_expression(*tensors) or why_switched_off(*(tensors if operation.is_composition else ()))


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
    """The Plan of a call of the operation with these tensors, None for those that are left out. Without channels, an
    operation takes only contiguous tensors; where there are several shapes, matrices have rows of contiguous elements."""
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
    return Plan(changed=added > 0, operands=tuple(None if one is None else one[(None,) * added] for one in tensors))


def unfit(name, tensor):
    """The reason why no kernel takes the tensor, whatever its strides; or None."""
    kind = type(tensor)
    if kind not in checks.PLAIN and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"`{name}` is a {kind.__name__}, which has its own __torch_dispatch__"
    if tensor.device.type not in _DEVICES:
        return f"`{name}` is on the device {tensor.device}, which has no kernels"
    if tensor.dtype not in _KERNEL_TYPES:
        return f"`{name}` has elements of {tensor.dtype}"
    try:
        recording.is_running() or tensor.data_ptr()
    except RuntimeError:
        return f"`{name}` has no memory, as inside torch.vmap"
    if tensor.is_neg():
        return f"`{name}` has a pending negation (resolve_neg() applies it)"
    if tensor.dim() > _MOST_DIMS:
        return f"`{name}` has more than {_MOST_DIMS} dimensions"
    return None


def _plan_views(operands, tensors):
    """The Plan of an operation with channels: views in the order of dimensions, or in that of memory."""
    place = next(place for place, one in enumerate(operands) if one.is_per_channel)
    first, gain = tensors[0], tensors[place]
    dims = max(first.dim(), 2)

    def view(operand, tensor):
        if not operand.is_per_channel:
            return tensor[(None,) * (dims - tensor.dim())]
        shape = (1,) * (dims - gain.dim()) + tuple(gain.shape[max(gain.dim() - dims, 0):])
        return expression.over_channels(tensor, gain).reshape(shape).contiguous()

    given = [(one, tensor, view(one, tensor)) for one, tensor in zip(operands, tensors) if tensor is not None]
    wide = view(operands[place], gain)
    if sum(size != 1 for size in wide.shape) > 1:
        return Plan("`gain` varies along more than one dimension")
    is_new = first.dim() < 2 or (gain.dim() <= 1 and gain.numel() == 1) or any(
        one.is_per_channel and (tensor.shape != gain.shape or not torch._C._is_alias_of(viewed, tensor))
        for one, tensor, viewed in given)
    reason, in_order = None, list(range(dims))
    viewed = given[0][2]
    for order in in_order, sorted(in_order, key=lambda dim: -viewed.stride(dim)):  # that of memory, as of channels_last
        turned = {one.name: viewed.permute(order) for one, _, viewed in given}
        sizes = wide.permute(order).shape[::-1]
        columns = max(next((dim for dim, size in enumerate(sizes) if size != 1), 1), 1)  # counted from the last dimension
        loose = next((one.name for one, _, _ in given
                      if not one.is_per_channel and not _flattens(turned[one.name], columns)), None)
        if loose is None:
            return Plan(changed=is_new or order != in_order, operands=tuple(turned.get(one.name) for one in operands))
        reason = reason or _no_rows(loose, turned[loose])
    return Plan(reason, strides_only=True)


def _no_rows(name, tensor):
    return (f"`{name}` has strides {tensor.stride()} and shape {tuple(tensor.shape)}, which do not form rows of "
            "contiguous elements with a constant stride")


def _flattens(tensor, column_dims=None):
    """Whether the tensor is a matrix with rows of contiguous elements and one stride between them. `column_dims`: how many
    dimensions, counted from the last, form the columns; None: all."""
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


def require_native(function, reason):
    """Raises FallbackError inside `dorajit.force_native()`."""
    if state.forced:
        raise errors.FallbackError(f"{function}: would run in PyTorch: {reason}", errors.UNSUPPORTED)
