"""The one predicate of a call: may its kernel be launched, or does somebody observe it (docs/python.md, "Routes")?

A call with plain tensors that nothing observes launches its kernel, in an autograd node where a graph is built. Any
other call is an operator of torch.library, or where no operator can be, PyTorch's own operations (why_expression).
"""

import torch
from torch.autograd import forward_ad as _forward_ad

from dorajit import _native
from dorajit.control import state
from dorajit.distributed import frameworks

# The ways of constant_route.
NATIVE, OPERATOR, EXPRESSION = "native", "operator", "expression"

# The observers: dispatch modes, modes before autograd (make_fx), torch.jit.trace, and torch.func transforms. For each
# kind a function, its result while there is none, and its argument if it takes one.
_SIGNS = [(torch._C._len_torch_dispatch_stack, 0),
          (torch._C._dispatch_tls_is_dispatch_key_included, False, torch._C.DispatchKey.PreDispatch),
          (torch._C._is_tracing, False),
          (torch._C._functorch.maybe_current_level, None)]

is_compiling = torch.compiler.is_compiling
_is_jit_tracing = torch._C._is_tracing
_transform_level = torch._C._functorch.maybe_current_level
_is_batch = torch._C._functorch.is_legacy_batchedtensor  # of autograd.grad(is_grads_batched=True)

# The observer of a call with these tensors and this scale, outside of torch.compile. NOBODY: the call is one
# launch and nothing else. AUTOGRAD: only autograd observes it, so it may be a node. SOMEBODY: another observer,
# or arguments that are not plain tensors and a float.
who_sees = _native.who_sees
SOMEBODY, NOBODY, AUTOGRAD = range(3)


def constant_route(*tensors):
    """How a call runs whose result is a constant for autograd and transforms: NATIVE, OPERATOR or EXPRESSION."""
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


def is_transformed():
    """Whether a torch.func transform or a level of forward-mode differentiation is active, for which operators have no
    rules."""
    return _has_transform() or _forward_ad._current_level >= 0


def _has_transform():
    return _transform_level() is not None


# The effect of torch.compiler.assume_constant_result, which would import the whole compiler. The traced answer
# stays valid, because a compiled function is guarded by the transforms around it.
_has_transform._dynamo_marked_constant = True


def why_expression(*tensors):
    """The reason, as text, why a call with these tensors that is observed must run in PyTorch's own operations; None if
    it can be an operator."""
    is_traced = is_compiling()
    if is_transformed() or (not is_traced and any(_is_batch(one) for one in tensors if isinstance(one, torch.Tensor))):
        return "a transform of torch.func or forward-mode differentiation is active"
    if is_traced:
        return None
    if _is_jit_tracing():
        return "torch.jit.trace or an exporter that uses it records the call, for programs that may run without dorajit"
    return "an operand is a DTensor" if any(map(frameworks.is_dtensor, tensors)) else None


def why_switched_off(*tensors):
    """The reason, as text, why a switch makes a composition of these tensors run in PyTorch; or None."""
    if not state.enabled:
        return "kernels are switched off (PEFT_DORA_FUSED=0 or dorajit.disabled())"
    if not state.fused_backward and builds_graph(*tensors):
        return "a graph is built, and that of the kernels is switched off (PEFT_DORA_FUSED_BACKWARD=0)"
    return None


_native.configure_eligibility(
    tensor=torch.Tensor,
    parameter=torch.nn.Parameter,
    is_grad_enabled=torch.is_grad_enabled,
    signs=_SIGNS,
    forward_ad=vars(_forward_ad))
