"""Which route a call takes. There are three, of which the first has two forms (docs/python.md).

A call that nobody observes launches its kernel at once, as a node of autograd's graph where one is
built. What a compiler, a mode or a subclass of tensors is to see goes through the operators of
torch.library. What has no rule for those is an expression of PyTorch's own operations. A kernel that then
refuses the tensors, as dorajit.dispatch explains, is replaced by the same expression on any route.
"""

import enum
import functools
import operator

import torch
from torch.autograd import forward_ad as _forward_ad

from dorajit import _native, dispatch
from dorajit.control import state
from dorajit.sharded import engines


class Route(enum.Enum):
    """How a call is run."""

    EAGER = "one launch"
    EAGER_WITH_GRAPH = "one launch and a node of autograd's graph"
    OPERATOR = "an operator of torch.library"
    EXPRESSION = "PyTorch's own operations"


def _bits(name):
    return torch._C.DispatchKeySet(torch._C._parse_dispatch_key(name)).raw_repr()


# Dispatch keys that a thread includes while somebody observes its operations one by one: dispatch modes,
# those before autograd (make_fx), torch.jit.trace, and the transforms of torch.func.
OBSERVERS = functools.reduce(operator.or_, map(_bits, (
    "Python", "PreDispatch", "Tracer", "FuncTorchDynamicLayerFrontMode")))

is_compiling = torch.compiler.is_compiling
is_jit_tracing = torch._C._is_tracing
_transform_level = torch._C._functorch.maybe_current_level


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


def is_observed():
    """Whether operations are seen one by one, so that a kernel among them or a write into a part of a
    tensor would be missed: by a compiler, a tracer, a mode (make_fx, selective checkpointing) or a
    transform of torch.func. An operator of torch.library is seen as one."""
    return is_compiling() or _native.is_observed()


def builds_graph(*operands):
    """Whether autograd follows one of the tensors among them."""
    return torch.is_grad_enabled() and any(
        isinstance(one, torch.Tensor) and one.requires_grad for one in operands)


def route(*tensors_and_scale):
    """The Route of a call of an operation with these tensors and this scale."""
    if is_compiling():
        return Route.EXPRESSION if is_transforming() else Route.OPERATOR
    return eager_route(*tensors_and_scale)


# The same of a call that no compiler traces, without Python.
eager_route = _native.route


def composition_route(*tensors_and_scale):
    """The same of a composition, whose graph PEFT_DORA_FUSED_BACKWARD=0 wants in PyTorch's operations."""
    found = route(*tensors_and_scale)
    if found is Route.EAGER or state.fused_backward or not builds_graph(*tensors_and_scale[:-1]):
        return found
    return Route.EXPRESSION


def _observed_route(*tensors_and_scale):
    """Of an eager call that somebody observes, or with an argument that is wrong."""
    return Route.OPERATOR if why_expression(*tensors_and_scale[:-1]) is None else Route.EXPRESSION


def why_expression(*tensors):
    """Why the tensors are for PyTorch's own operations whatever kernels could do, in words, or None."""
    if is_compiling():  # which does not look into operators that are differentiated in Python
        return _TRANSFORM if is_transforming() else None
    if is_transformed(tensors):
        return _TRANSFORM
    if any(map(engines.is_dtensor, tensors)):
        return "an operand is a DTensor"
    if any(getattr(one, "is_nested", False) for one in tensors):
        return "an operand is a nested tensor"
    return None


_TRANSFORM = "a transform of torch.func or forward-mode differentiation is active"
TRANSFORMED = dispatch.Plan(_TRANSFORM)


def allow_expression(function, *tensors):
    """Raises FallbackError inside `dorajit.force_native()`, if these tensors are why there is no kernel."""
    reason = why_expression(*tensors)
    if reason is not None:
        dispatch.require_native(function, dispatch.Plan(reason))


_native.configure_eligibility(
    tensor=torch.Tensor,
    parameter=torch.nn.Parameter,
    is_grad_enabled=torch.is_grad_enabled,
    included_keys=torch._C._dispatch_tls_local_include_set,
    observers=OBSERVERS,
    forward_ad=vars(_forward_ad),
    eager=Route.EAGER,
    eager_with_graph=Route.EAGER_WITH_GRAPH,
    observed_route=_observed_route)
