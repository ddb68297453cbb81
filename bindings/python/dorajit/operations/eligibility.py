"""Which route a call takes, decided here alone. There are three (docs/python.md, "Routes").

A call that nobody observes launches its kernel at once, as a node of autograd's graph where one is built.
What a compiler, a mode or a subclass of tensors is to see goes through the operators of torch.library. What
has no rule for those is an expression of PyTorch's own operations. A kernel that then refuses the tensors,
as dorajit.operations.dispatch explains, is replaced by the same expression on any route.

The C++ extension has the node of a linear layer on the first route. It has the same tests in C++ for its backward
pass (cpp_extension/eligibility.h) and reads OBSERVERS from here.
"""

import enum
import functools
import operator

import torch
from torch.autograd import forward_ad as _forward_ad

from dorajit import _native
from dorajit.operations import dispatch
from dorajit.control import state
from dorajit.distributed import frameworks


class Route(enum.Enum):
    """How a call is run."""

    NATIVE = "one launch, and a node of autograd's graph where one is built"
    OPERATOR = "an operator of torch.library"
    EXPRESSION = "PyTorch's own operations"


# Reading a member of an Enum runs Python, up to Python 3.11.
NATIVE, OPERATOR, EXPRESSION = Route


def _bits(name):
    return torch._C.DispatchKeySet(torch._C._parse_dispatch_key(name)).raw_repr()


# Dispatch keys that a thread includes while somebody observes its operations one by one: dispatch modes,
# those before autograd (make_fx), torch.jit.trace, and the transforms of torch.func.
OBSERVERS = functools.reduce(operator.or_, map(_bits, (
    "Python", "PreDispatch", "Tracer", "FuncTorchDynamicLayerFrontMode")))
# The same observers for a thread that asks from Python, to which the set of its keys is an object that has
# to be made: functions, what they give while nobody is there, and an argument.
_SIGNS = [(torch._C._len_torch_dispatch_stack, 0),
          (torch._C._dispatch_tls_is_dispatch_key_included, False, torch._C.DispatchKey.PreDispatch),
          (torch._C._is_tracing, False),
          (torch._C._functorch.maybe_current_level, None)]
_TRANSFORM = "a transform of torch.func or forward-mode differentiation is active"

is_compiling = torch.compiler.is_compiling
_is_jit_tracing = torch._C._is_tracing
_transform_level = torch._C._functorch.maybe_current_level
_is_batch = torch._C._functorch.is_legacy_batchedtensor  # of autograd.grad(is_grads_batched=True)

# Who sees a call with these tensors and this scale, which no compiler traces: a call that nobody sees is
# one launch and nothing else, one that autograd alone sees may be a node. SOMEBODY stands for arguments as
# well that are no plain tensors and no float.
who_sees = _native.who_sees
SOMEBODY, NOBODY, AUTOGRAD = range(3)


def route(*tensors_and_scale, has_node=False, constant=None):
    """The Route of a call of an operation with these tensors and this scale.

    Args:
        has_node: whether the caller has a node of autograd's graph for it, which
            PEFT_DORA_FUSED_BACKWARD=0 turns into the expression. Otherwise a graph is the operator's.
        constant: a tensor that the node and the operator have no gradient for.
    """
    tensors = tensors_and_scale[:-1]
    if has_node and not has_fused_graph(tensors[0], constant) and builds_graph(*tensors):
        return EXPRESSION
    if not is_compiling():
        seen = who_sees(*tensors_and_scale)
        if seen == NOBODY or (seen == AUTOGRAD and has_node):
            return NATIVE
    return OPERATOR if why_expression(*tensors) is None else EXPRESSION


def has_fused_graph(first, constant=None):
    """Whether the node is the graph of a call, where one is built, of a tensor like the first."""
    is_complex = isinstance(first, torch.Tensor) and first.is_complex()
    return state.fused_backward and not is_complex and (constant is None or not builds_graph(constant))


def constant_route(*tensors):
    """The same of what autograd and transforms take for a constant."""
    is_seen = is_compiling() or (is_observed() and not any(map(frameworks.is_dtensor, tensors)))
    return OPERATOR if is_seen else NATIVE


def is_observed():
    """Whether operations are seen one by one, so that a kernel among them or a write into a part of a
    tensor would be missed: by a compiler, a tracer, a mode (make_fx, selective checkpointing) or a
    transform of torch.func. An operator of torch.library is seen as one."""
    return is_compiling() or _native.is_observed()


def builds_graph(*operands):
    """Whether autograd follows one of the tensors among them."""
    return torch.is_grad_enabled() and any(
        isinstance(one, torch.Tensor) and one.requires_grad for one in operands)


def keeps_inner(gain):
    """Whether the operator makes inner for a backward pass. Not in a trace of torch.jit, which compares it
    with one that builds no graph."""
    return builds_graph(gain) and (is_compiling() or not _is_jit_tracing())


def is_transformed(operands):
    """Whether a transform of torch.func is active, forward-mode differentiation follows an operand, or
    one stands for a batch of gradients."""
    return _has_transform() or _has_tangent(operands) or any(
        isinstance(one, torch.Tensor) and _is_batch(one) for one in operands)


def _has_transform():
    return _transform_level() is not None


# What torch.compiler.assume_constant_result does, which would import the whole compiler: the answer
# holds where it was traced, and a compiled function is guarded by the transforms around it.
_has_transform._dynamo_marked_constant = True


def _has_tangent(operands):
    """Whether forward-mode differentiation follows an operand; of a traced call, which tensors do not
    tell, whether it may."""
    if _forward_ad._current_level < 0:
        return False
    return is_compiling() or any(
        isinstance(one, torch.Tensor) and _forward_ad.unpack_dual(one).tangent is not None for one in operands)


def why_expression(*tensors):
    """Why the tensors are for PyTorch's own operations whatever kernels could do, in words, or None."""
    if is_compiling():  # which does not look into operators that are differentiated in Python
        return _TRANSFORM if _has_transform() or _has_tangent(tensors) else None
    if is_transformed(tensors):
        return _TRANSFORM
    if any(map(frameworks.is_dtensor, tensors)):
        return "an operand is a DTensor"
    if any(getattr(one, "is_nested", False) for one in tensors):
        return "an operand is a nested tensor"
    return None


def why_switched_off(*tensors):
    """Which switch wants PyTorch's own operations for a composition of these tensors, or None."""
    if not state.enabled:
        return "kernels are switched off (PEFT_DORA_FUSED=0 or dorajit.disabled())"
    if not state.fused_backward and builds_graph(*tensors):
        return ("a graph is built, and that of the kernels is switched off "
                "(PEFT_DORA_FUSED_BACKWARD=0)")
    return None


def allow_expression(function, *tensors):
    """Raises FallbackError inside `dorajit.force_native()`, if these tensors are why there is no kernel."""
    reason = why_expression(*tensors)
    if reason is not None:
        dispatch.require_native(function, dispatch.Plan(reason))


_native.configure_eligibility(
    tensor=torch.Tensor,
    parameter=torch.nn.Parameter,
    is_grad_enabled=torch.is_grad_enabled,
    signs=_SIGNS,
    observers=OBSERVERS,
    forward_ad=vars(_forward_ad))
