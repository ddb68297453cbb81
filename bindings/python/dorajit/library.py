"""The operators dorajit::* of torch.library, for torch.compile, torch.export and dispatch modes.

    dorajit::compose(lora, base, gain, scale) -> out
    dorajit::compose_(lora!, base, gain, scale)                  in lora's memory
    dorajit::compose_inner(lora, base, gain, scale) -> (out, inner)
    dorajit::backward(d_out, inner?, gain, scale, wanted, base_dtype) -> the gradients wanted
    dorajit::norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale) -> norm

and over the base result `compose_residual`, `compose_residual_inner` and `residual_backward`. Each runs
a kernel where one will do and PyTorch elsewhere, as the functions do, and is differentiable; the backward
pass of a composition is dorajit::backward or residual_backward.
"""

import torch

from dorajit import autograd, checks, dispatch, expression, registration, run, tracing
from dorajit.control import state

_ops = torch.ops.dorajit
_library = registration.Library("dorajit", "DEF")
_SCHEMAS = (
    "compose(Tensor lora, Tensor base, Tensor gain, float scale) -> Tensor",
    "compose_(Tensor(a!) lora, Tensor base, Tensor gain, float scale) -> ()",
    "compose_inner(Tensor lora, Tensor base, Tensor gain, float scale) -> (Tensor, Tensor)",
    "backward(Tensor d_out, Tensor? inner, Tensor gain, float scale, bool[] wanted, "
    "ScalarType base_dtype) -> Tensor[]",
    "norm_assembly(Tensor w_norm_sq, Tensor cross_term, Tensor ba_norm_sq, float scale) -> Tensor",
    "compose_residual(Tensor lora, Tensor result, Tensor gain, Tensor? bias, float scale) -> Tensor",
    "compose_residual_inner(Tensor lora, Tensor result, Tensor gain, Tensor? bias, float scale) "
    "-> (Tensor, Tensor)",
    "residual_backward(Tensor d_out, Tensor? inner, Tensor gain, float scale, bool[] wanted, "
    "ScalarType lora_dtype, ScalarType result_dtype) -> Tensor[]",
)


# --- what they run -------------------------------------------------------------------------------

def _compose(lora, base, gain, scale):
    return _laid_out(run.compose(lora, base, gain, scale), lora)


def _compose_into(lora, base, gain, scale):
    checks.not_frozen("compose_", lora)
    run.compose(lora, base, gain, scale, lora)


def _compose_inner(lora, base, gain, scale):
    out, inner = run.compose_inner(lora, base, gain, scale)
    return _laid_out(out, lora), _laid_out(inner, lora)


def _backward(d_out, inner, gain, scale, wanted, base_dtype):
    return _wanted(run.backward(d_out, inner, gain, scale, tuple(wanted), base_dtype), d_out, gain)


def _wanted(gradients, d_out, gain):
    return [_laid_out(gradient, like) for gradient, like in zip(gradients, (d_out, d_out, gain))
            if gradient is not None]


def _norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale):
    return _laid_out(run.norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale), w_norm_sq)


def _compose_residual(lora, result, gain, bias, scale):
    return _laid_out(run.compose_residual(lora, result, gain, bias, scale, False)[0], lora)


def _compose_residual_inner(lora, result, gain, bias, scale):
    out, inner = run.compose_residual(lora, result, gain, bias, scale, True)
    return _laid_out(out, lora), _laid_out(inner, lora)


def _residual_backward(d_out, inner, gain, scale, wanted, lora_dtype, result_dtype):
    return _wanted(run.residual_backward(d_out, inner, gain, scale, tuple(wanted), lora_dtype,
                                         result_dtype), d_out, gain)


def _laid_out(result, like):
    """The result with the strides that the fake implementations promise."""
    if like.layout is not torch.strided:
        return result
    strides = torch.empty_like(like, device="meta").stride()  # which takes no memory
    if result.stride() == strides:
        return result
    return torch.empty_strided(like.shape, strides, dtype=result.dtype, device=result.device).copy_(result)


# --- what they would return ----------------------------------------------------------------------

def _fake_compose(lora, base, gain, scale):
    checks.compose("compose", lora, base, gain)
    return torch.empty_like(lora)


def _fake_compose_into(lora, base, gain, scale):
    checks.compose("compose", lora, base, gain)


def _fake_compose_inner(lora, base, gain, scale):
    checks.compose("compose_inner", lora, base, gain)
    return torch.empty_like(lora), torch.empty_like(lora)


def _fake_backward(d_out, inner, gain, scale, wanted, base_dtype):
    checks.backward("backward", d_out, inner, gain)
    return _fake_gradients(d_out, gain, wanted, d_out.dtype, base_dtype)


def _fake_gradients(d_out, gain, wanted, lora_dtype, base_dtype):
    likes = ((d_out, lora_dtype), (d_out, base_dtype), (gain, gain.dtype))
    return [torch.empty_like(like, dtype=dtype)
            for (like, dtype), want in zip(likes, wanted) if want]


def _fake_norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale):
    checks.norm_assembly("norm_assembly", w_norm_sq, cross_term, ba_norm_sq)
    return torch.empty_like(w_norm_sq)


def _fake_compose_residual(lora, result, gain, bias, scale):
    checks.compose_residual("compose_residual", lora, result, gain, bias)
    return torch.empty_like(lora, dtype=expression.sum_type(lora, result))


def _fake_compose_residual_inner(lora, result, gain, bias, scale):
    out = _fake_compose_residual(lora, result, gain, bias, scale)
    return out, torch.empty_like(out)


def _fake_residual_backward(d_out, inner, gain, scale, wanted, lora_dtype, result_dtype):
    checks.backward("residual_backward", d_out, inner, gain)
    return _fake_gradients(d_out, gain, wanted, lora_dtype, result_dtype)


# --- how they are differentiated -----------------------------------------------------------------

class _Composition:
    """How the composition is differentiated, with and without inner as an output, by itself or over a
    base result.

    Operands are lora, the base result, gain, and more that have no gradients, the scale last.
    """

    def __init__(self, compose_inner, backward, types):
        self._compose_inner = compose_inner  # name of the operator
        self._backward = backward            # of autograd
        self._types = types                  # (lora, base) -> what backward takes

    def _keep(self, ctx, inputs):
        lora, base, _, *more = inputs
        if any(ctx.needs_input_grad[3:]):
            raise RuntimeError("compose_residual: argument `bias` requires grad, for which the operator "
                               "has no formula; call dorajit.fused_dora_compose_residual")
        ctx.scale, ctx.types, ctx.more = more[-1], self._types(lora, base), len(more)

    def save(self, ctx, inputs, output):
        self._keep(ctx, inputs)
        lora, base, gain, *biases, _ = inputs
        # inner is computed again, if it is needed: callers that know they need it use the other form.
        ctx.save_for_backward(gain, *((lora, base, *biases) if ctx.needs_input_grad[2] else ()))

    def differentiate(self, ctx, d_out):
        gain, *operands = ctx.saved_tensors
        inner = None
        if operands:
            lora, base, *biases = operands
            inner = getattr(_ops, self._compose_inner)(lora, base, gain, *biases, ctx.scale)[1]
        found = self._backward(d_out, inner, gain, ctx.scale, ctx.needs_input_grad, *ctx.types)
        return *found, *(None,) * ctx.more

    def save_inner(self, ctx, inputs, output):
        self._keep(ctx, inputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[2], output[1] if ctx.needs_input_grad[2] else None)

    def differentiate_inner(self, ctx, d_out, d_inner):
        return *autograd.gradients(ctx, d_out, d_inner, self._backward), *(None,) * ctx.more


_composition = _Composition("compose_inner", autograd.backward, lambda lora, base: (base.dtype,))
_over_residual = _Composition("compose_residual_inner", autograd.residual_backward,
                              lambda lora, result: (lora.dtype, result.dtype))


def _save_for_backward(ctx, inputs, output):
    d_out, inner, gain, ctx.scale, ctx.wanted, *types = inputs
    ctx.types = len(types)
    ctx.save_for_backward(d_out, gain, inner)


def _differentiate_backward(ctx, gradients, is_residual=False):
    d_out, gain, inner = ctx.saved_tensors
    given = iter(gradients)
    gradients = [next(given) if want else None for want in ctx.wanted]
    return *expression.second_backward(d_out, inner, gain, ctx.scale, gradients,
                                       ctx.needs_input_grad[:3], is_residual), *(None,) * (2 + ctx.types)


def _differentiate_residual_backward(ctx, gradients):
    return _differentiate_backward(ctx, gradients, True)


def _save_for_norm_assembly(ctx, inputs, output):
    *terms, ctx.scale = inputs
    ctx.save_for_backward(*terms)


def _differentiate_norm_assembly(ctx, d_norm):
    terms = ctx.saved_tensors
    return *expression.norm_assembly_backward(d_norm, *terms, ctx.scale, ctx.needs_input_grad[:3]), None


# --- what they are in PyTorch's operations -------------------------------------------------------

def _plain_compose(lora, base, gain, scale):
    checks.compose("compose", lora, base, gain)
    return expression.compose(lora, base, gain, scale)


def _plain_compose_inner(lora, base, gain, scale):
    checks.compose("compose_inner", lora, base, gain)
    return expression.compose_inner(lora, base, gain, scale)


def _plain_backward(d_out, inner, gain, *how):
    checks.backward("backward", d_out, inner, gain)
    return [one for one in expression.backward(d_out, inner, gain, *how) if one is not None]


def _plain_norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale):
    checks.norm_assembly("norm_assembly", w_norm_sq, cross_term, ba_norm_sq)
    return expression.norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale)


def _plain_compose_residual(*operands):
    return _plain_compose_residual_inner(*operands)[0]


def _plain_compose_residual_inner(lora, result, gain, bias, scale):
    checks.compose_residual("compose_residual", lora, result, gain, bias)
    return expression.compose_residual(lora, result, gain, bias, scale, expression.sum_type(lora, result))


def _plain_residual_backward(d_out, inner, gain, *how):
    checks.backward("residual_backward", d_out, inner, gain)
    return [one for one in expression.residual_backward(d_out, inner, gain, *how) if one is not None]


# --- registration --------------------------------------------------------------------------------

def _register(name, run_it, fake):
    # Below autograd and for every device: what has no kernels there runs in PyTorch.
    _library.impl(name, run_it, "CompositeExplicitAutograd")
    torch.library.register_fake(f"dorajit::{name}", fake, lib=_library)


for _schema in _SCHEMAS:
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))
_register("compose", _compose, _fake_compose)
_register("compose_", _compose_into, _fake_compose_into)
_register("compose_inner", _compose_inner, _fake_compose_inner)
_register("backward", _backward, _fake_backward)
_register("norm_assembly", _norm_assembly, _fake_norm_assembly)
_register("compose_residual", _compose_residual, _fake_compose_residual)
_register("compose_residual_inner", _compose_residual_inner, _fake_compose_residual_inner)
_register("residual_backward", _residual_backward, _fake_residual_backward)
_library.register_autograd("compose", _plain_compose, _composition.differentiate, _composition.save)
_library.register_autograd("compose_inner", _plain_compose_inner, _composition.differentiate_inner,
                           _composition.save_inner)
_library.register_autograd("backward", _plain_backward, _differentiate_backward, _save_for_backward)
_library.register_autograd("norm_assembly", _plain_norm_assembly, _differentiate_norm_assembly,
                           _save_for_norm_assembly)
_library.register_autograd("compose_residual", _plain_compose_residual, _over_residual.differentiate,
                           _over_residual.save)
_library.register_autograd("compose_residual_inner", _plain_compose_residual_inner,
                           _over_residual.differentiate_inner, _over_residual.save_inner)
_library.register_autograd("residual_backward", _plain_residual_backward,
                           _differentiate_residual_backward, _save_for_backward)
# Of the two that which keeps inner: the other keeps lora, to be written.
_library.register_in_place("compose_", lambda *operands: _ops.compose_inner(*operands)[0])


# --- calls through them --------------------------------------------------------------------------

def _is_transforming(function, check, *tensors):
    """Whether a compiler is to see PyTorch's own operations, as it does not look into operators that are
    differentiated in Python. The tensors, which no operator checks then, are what it takes. Eager calls
    have been asked before (tracing.takes_plain_formula)."""
    if not (tracing.is_compiling() and tracing.is_transforming()):
        return False
    check(function, *tensors)
    dispatch.require_native(function, registration.TRANSFORMED)
    return True


def _is_plain(function, lora, base, gain):
    """The same, or PEFT_DORA_FUSED_BACKWARD=0 asks for the graph of PyTorch's own operations."""
    if _is_transforming(function, checks.compose, lora, base, gain):
        return True
    if state.fused_backward or not registration.builds_graph(lora, base, gain):
        return False
    checks.compose(function, lora, base, gain)
    return True


def compose(lora, base, gain, scale, inplace):
    """fused_dora_compose as operators, or as PyTorch's own; traceable."""
    if _is_plain("fused_dora_compose", lora, base, gain):
        result = expression.compose(lora, base, gain, scale)
        return lora.copy_(result) if inplace else result
    if inplace:
        if registration.builds_graph(lora, base, gain):
            return lora.copy_(compose(lora, base, gain, scale, False))
        _ops.compose_(lora, base, gain, scale)
        return lora
    if _keeps_inner(gain):
        return _ops.compose_inner(lora, base, gain, scale)[0]
    return _ops.compose(lora, base, gain, scale)


def _keeps_inner(gain):
    """Whether inner is made for a backward pass. Not in a trace of torch.jit, which compares it with one
    that builds no graph."""
    return (torch.is_grad_enabled() and gain.requires_grad
            and (tracing.is_compiling() or not tracing.is_jit_tracing()))


def compose_inner(lora, base, gain, scale):
    """As compose, for fused_dora_forward_and_inner."""
    if _is_plain("fused_dora_forward_and_inner", lora, base, gain):
        return expression.compose_inner(lora, base, gain, scale)
    return _ops.compose_inner(lora, base, gain, scale)


def backward(d_out, inner, gain, scale, wanted):
    """As compose, for compose_backward."""
    if _is_transforming("compose_backward", checks.backward, d_out, inner, gain):
        return tuple(expression.backward(d_out, inner, gain, scale, wanted, d_out.dtype))
    results = _ops.backward(d_out, inner if wanted[2] else None, gain, scale, wanted, d_out.dtype)
    placed, position = [], 0
    for want in wanted:
        placed.append(results[position] if want else None)
        position += int(want)
    return tuple(placed)


def norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale):
    """As compose, for fused_norm_assembly."""
    if _is_transforming("fused_norm_assembly", checks.norm_assembly, w_norm_sq, cross_term, ba_norm_sq):
        return expression.norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale)
    return _ops.norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale)


def compose_residual(lora, result, gain, bias, scale):
    """As compose, for fused_dora_compose_residual outside of transforms of torch.func."""
    if _keeps_inner(gain):
        return _ops.compose_residual_inner(lora, result, gain, bias, scale)[0]
    return _ops.compose_residual(lora, result, gain, bias, scale)
