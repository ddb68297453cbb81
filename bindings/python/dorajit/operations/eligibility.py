"""Whether a call must go through PyTorch's dispatcher (autograd, modes, tracing, functorch) or can be launched
directly. This module alone decides which of three routes a call takes (docs/python.md, "Routes").

A call that nothing observes launches its kernel at once, in an autograd node where a graph is built. A call that
a compiler, a mode or a tensor subclass observes goes through the operators of torch.library. A call for which
these operators have no rule, or that torch.jit.trace records, runs as an expression of PyTorch's own operations. On
every route, tensors that the kernel refuses run in the same expression (dorajit.operations.dispatch).
"""

import enum

import torch
from torch.autograd import forward_ad as _forward_ad

from dorajit import _native
from dorajit.operations import dispatch
from dorajit.control import state
from dorajit.distributed import frameworks


class Route(enum.Enum):
    """How a call runs."""

    NATIVE = "one launch, in an autograd node where a graph is built"
    OPERATOR = "an operator of torch.library"
    EXPRESSION = "PyTorch's own operations"


# Module variables, because up to Python 3.11 each access to a member of an Enum runs Python code.
NATIVE, OPERATOR, EXPRESSION = Route


# The observers: dispatch modes, modes before autograd (make_fx), torch.jit.trace, and torch.func transforms. For each kind of observer: a function, its result while there is none, and its argument if it takes one.
_SIGNS = [(torch._C._len_torch_dispatch_stack, 0),
          (torch._C._dispatch_tls_is_dispatch_key_included, False, torch._C.DispatchKey.PreDispatch),
          (torch._C._is_tracing, False),
          (torch._C._functorch.maybe_current_level, None)]
_TRANSFORM = "a transform of torch.func or forward-mode differentiation is active"
_JIT = "torch.jit.trace or an exporter that uses it records the call, for programs that may run without dorajit"

is_compiling = torch.compiler.is_compiling
_is_jit_tracing = torch._C._is_tracing
_transform_level = torch._C._functorch.maybe_current_level
_is_batch = torch._C._functorch.is_legacy_batchedtensor  # of autograd.grad(is_grads_batched=True)

# The observer of a call with these tensors and this scale, outside of torch.compile. NOBODY: the call is one
# launch and nothing else. AUTOGRAD: only autograd observes it, so it may be a node. SOMEBODY: another observer,
# or arguments that are not plain tensors and a float.
who_sees = _native.who_sees
SOMEBODY, NOBODY, AUTOGRAD = range(3)


def route(*tensors_and_scale, has_node=False, constant=None):
    """The Route of a call of an operation with these tensors and this scale.

    Args:
        has_node: whether the caller has an autograd node for the call, which
            PEFT_DORA_FUSED_BACKWARD=0 and complex numbers replace by the expression. Otherwise the operator builds the
            graph.
        constant: a tensor for which node and operator have no gradient.
    """
    tensors = tensors_and_scale[:-1]
    if has_node and builds_graph(*tensors):
        is_complex = isinstance(tensors[0], torch.Tensor) and tensors[0].is_complex()
        if is_complex or not state.fused_backward or builds_graph(constant):
            return EXPRESSION
    if not is_compiling():
        seen = who_sees(*tensors_and_scale)
        if seen == NOBODY or (seen == AUTOGRAD and has_node):
            return NATIVE
    return OPERATOR if why_expression(*tensors) is None else EXPRESSION


def constant_route(*tensors):
    """The Route of a call whose result is a constant for autograd and transforms."""
    if not is_observed() or (not is_compiling() and any(map(frameworks.is_dtensor, tensors))):
        return NATIVE
    return OPERATOR if state.enabled and (is_compiling() or not _is_jit_tracing()) else EXPRESSION


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


def is_transformed(operands):
    """Whether a torch.func transform is active, an operand has a forward-mode tangent, or an operand is a
    batch of gradients."""
    return _has_transform() or _has_tangent(operands) or any(
        isinstance(one, torch.Tensor) and _is_batch(one) for one in operands)


def _has_transform():
    return _transform_level() is not None


# The effect of torch.compiler.assume_constant_result, which would import the whole compiler. The traced answer
# stays valid, because a compiled function is guarded by the transforms around it.
_has_transform._dynamo_marked_constant = True


def _has_tangent(operands):
    """Whether an operand has a forward-mode tangent. While torch.compile traces, tensors do not show this; then
    whether an operand may have one."""
    if _forward_ad._current_level < 0:
        return False
    return is_compiling() or any(
        isinstance(one, torch.Tensor) and _forward_ad.unpack_dual(one).tangent is not None for one in operands)


def why_expression(*tensors):
    """The reason, as text, why a call with these tensors must run in PyTorch's own operations even if a kernel
    would take them; or None."""
    if is_compiling():  # the compiler does not trace into operators that are differentiated in Python
        return _TRANSFORM if _has_transform() or _has_tangent(tensors) else None
    if _is_jit_tracing():
        return _JIT
    if is_transformed(tensors):
        return _TRANSFORM
    if any(map(frameworks.is_dtensor, tensors)):
        return "an operand is a DTensor"
    if any(getattr(one, "is_nested", False) for one in tensors):
        return "an operand is a nested tensor"
    return None


def why_switched_off(*tensors):
    """The reason, as text, why a switch makes a composition of these tensors run in PyTorch; or None."""
    if not state.enabled:
        return "kernels are switched off (PEFT_DORA_FUSED=0 or dorajit.disabled())"
    if not state.fused_backward and builds_graph(*tensors):
        return ("a graph is built, and that of the kernels is switched off "
                "(PEFT_DORA_FUSED_BACKWARD=0)")
    return None


def allow_expression(function, *tensors):
    """Raises FallbackError inside `dorajit.force_native()` if these tensors must run in PyTorch."""
    reason = why_expression(*tensors)
    if reason is not None:
        dispatch.require_native(function, dispatch.Plan(reason))


_native.configure_eligibility(
    tensor=torch.Tensor,
    parameter=torch.nn.Parameter,
    is_grad_enabled=torch.is_grad_enabled,
    signs=_SIGNS,
    forward_ad=vars(_forward_ad))
