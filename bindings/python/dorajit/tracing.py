"""Who besides autograd has a say in a call: what compiles, records or transforms its operations."""

import torch
from torch.autograd import forward_ad as _forward_ad

from dorajit import dispatch
from dorajit.sharded import engines

is_compiling = torch.compiler.is_compiling
_transform_level = torch._C._functorch.maybe_current_level
_modes = torch._C._len_torch_dispatch_stack
_is_included = torch._C._dispatch_tls_is_dispatch_key_included
_PRE_DISPATCH = torch._C.DispatchKey.PreDispatch
is_jit_tracing = torch._C._is_tracing


def has_transform():
    """Inside a transform of torch.func."""
    return _transform_level() is not None


# What torch.compiler.assume_constant_result does, which would import the whole compiler: the answer
# holds where it was traced, and a compiled function is guarded by the transforms around it.
has_transform._dynamo_marked_constant = True


def is_transforming():
    """Inside a transform of torch.func, or under forward-mode differentiation."""
    return has_transform() or _forward_ad._current_level >= 0


def is_transformed(operands):
    """Whether a transform of torch.func is active, or forward-mode differentiation follows an operand."""
    return _transform_level() is not None or (_forward_ad._current_level >= 0 and any(
        isinstance(one, torch.Tensor) and _forward_ad.unpack_dual(one).tangent is not None
        for one in operands))


def is_watched():
    """Whether operations are seen one by one, so that a kernel among them or a write into a part of a
    tensor would be missed: by a compiler, a tracer, a mode (make_fx, selective checkpointing) or a
    transform of torch.func. An operator of torch.library is seen as one."""
    return (is_compiling() or _modes() > 0 or _is_included(_PRE_DISPATCH) or is_jit_tracing()
            or _transform_level() is not None)


def takes_plain_formula(function, *tensors):
    """Whether a call is for PyTorch's own operations whatever kernels could do.

    Raises:
        FallbackError: it is, inside `dorajit.force_native()`.
    """
    reason = why_plain(*tensors)
    if reason is not None:
        dispatch.require_native(function, dispatch.Plan(reason))
    return reason is not None


def why_plain(*tensors):
    """The reason for that in words, or None."""
    if is_transformed(tensors):
        return "a transform of torch.func or forward-mode differentiation is active"
    if any(map(engines.is_dtensor, tensors)):
        return "an operand is a DTensor"
    if any(getattr(one, "is_nested", False) for one in tensors):
        return "an operand is a nested tensor"
    return None
