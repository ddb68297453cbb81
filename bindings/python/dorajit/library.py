"""The operators dorajit::* of torch.library, for torch.compile, torch.export and dispatch modes.

    dorajit::compose(lora, base, gain, scale) -> out
    dorajit::compose_(lora!, base, gain, scale)                  in lora's memory, without autograd
    dorajit::compose_inner(lora, base, gain, scale) -> (out, inner)
    dorajit::backward(d_out, inner?, gain, scale, wanted, base_dtype) -> the gradients wanted
    dorajit::norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale) -> norm

Each runs a kernel where one will do and PyTorch elsewhere, as the functions do; each but the second
has an autograd formula, whose backward pass is dorajit::backward.
"""

import torch

from dorajit import autograd, checks, expression, run

_ops = torch.ops.dorajit
_library = torch.library.Library("dorajit", "DEF")
_SCHEMAS = (
    "compose(Tensor lora, Tensor base, Tensor gain, float scale) -> Tensor",
    "compose_(Tensor(a!) lora, Tensor base, Tensor gain, float scale) -> ()",
    "compose_inner(Tensor lora, Tensor base, Tensor gain, float scale) -> (Tensor, Tensor)",
    "backward(Tensor d_out, Tensor? inner, Tensor gain, float scale, bool[] wanted, "
    "ScalarType base_dtype) -> Tensor[]",
    "norm_assembly(Tensor w_norm_sq, Tensor cross_term, Tensor ba_norm_sq, float scale) -> Tensor",
)


# --- what they run -------------------------------------------------------------------------------

def _compose(lora, base, gain, scale):
    return _laid_out(run.compose(lora, base, gain, scale), lora)


def _compose_into(lora, base, gain, scale):
    run.compose(lora, base, gain, scale, lora)


def _compose_inner(lora, base, gain, scale):
    out, inner = run.compose_inner(lora, base, gain, scale)
    return _laid_out(out, lora), _laid_out(inner, lora)


def _backward(d_out, inner, gain, scale, wanted, base_dtype):
    d_lora, d_base, d_gain = run.backward(d_out, inner, gain, scale, tuple(wanted), base_dtype)
    return [_laid_out(gradient, like) for gradient, like
            in ((d_lora, d_out), (d_base, d_out), (d_gain, gain)) if gradient is not None]


def _norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale):
    return _laid_out(run.norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale), w_norm_sq)


def _laid_out(result, like):
    """The result with the strides that the fake implementations promise."""
    if like.layout is not torch.strided:
        return result
    promised = torch.empty_like(like, dtype=result.dtype)
    return result if result.stride() == promised.stride() else promised.copy_(result)


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
    likes = ((d_out, d_out.dtype), (d_out, base_dtype), (gain, gain.dtype))
    return [torch.empty_like(like, dtype=dtype)
            for (like, dtype), want in zip(likes, wanted) if want]


def _fake_norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale):
    checks.norm_assembly("norm_assembly", w_norm_sq, cross_term, ba_norm_sq)
    return torch.empty_like(w_norm_sq)


# --- how they are differentiated -----------------------------------------------------------------

def _save_for_compose(ctx, inputs, output):
    lora, base, gain, ctx.scale = inputs
    ctx.base_dtype = base.dtype
    # inner is computed again, if it is needed: callers that know they need it use compose_inner.
    needed = (lora, base) if ctx.needs_input_grad[2] else ()
    ctx.save_for_backward(gain, *needed)


def _differentiate_compose(ctx, d_out):
    gain, *operands = ctx.saved_tensors
    inner = _ops.compose_inner(*operands, gain, ctx.scale)[1] if operands else None
    return *autograd.differentiable_backward(d_out, inner, gain, ctx.scale,
                                             ctx.needs_input_grad[:3], ctx.base_dtype), None


def _save_for_compose_inner(ctx, inputs, output):
    _, base, gain, ctx.scale = inputs
    ctx.base_dtype = base.dtype
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(gain, *(output[1:] if ctx.needs_input_grad[2] else ()))


def _differentiate_compose_inner(ctx, d_out, d_inner):
    gain, *kept = ctx.saved_tensors
    wanted = ctx.needs_input_grad[:3]
    d_lora = d_base = d_gain = None
    if d_out is not None:
        d_lora, d_base, d_gain = autograd.differentiable_backward(
            d_out, kept[0] if kept else None, gain, ctx.scale, wanted, ctx.base_dtype)
    if d_inner is not None:
        d_lora, d_base = autograd.add_inner(d_lora, d_base, d_inner, ctx.scale, wanted,
                                            ctx.base_dtype)
    return d_lora, d_base, d_gain, None


def _save_for_backward(ctx, inputs, output):
    d_out, inner, gain, ctx.scale, ctx.wanted, _ = inputs
    ctx.save_for_backward(d_out, gain, *(() if inner is None else (inner,)))


def _differentiate_backward(ctx, gradients):
    d_out, gain, *kept = ctx.saved_tensors
    given = iter(gradients)
    gradients = [next(given) if want else None for want in ctx.wanted]
    return *expression.second_backward(d_out, kept[0] if kept else None, gain, ctx.scale,
                                       gradients, ctx.needs_input_grad[:3]), None, None, None


def _save_for_norm_assembly(ctx, inputs, output):
    *terms, ctx.scale = inputs
    ctx.save_for_backward(*terms)


def _differentiate_norm_assembly(ctx, d_norm):
    terms = [term.detach().requires_grad_(want)
             for term, want in zip(ctx.saved_tensors, ctx.needs_input_grad)]
    with torch.enable_grad():
        norm = expression.norm_assembly(*terms, ctx.scale)
    wanted = [term for term in terms if term.requires_grad]
    found = iter(torch.autograd.grad(norm, wanted, d_norm))
    return *(next(found) if term.requires_grad else None for term in terms), None


# --- registration --------------------------------------------------------------------------------

def _register(name, run_it, fake, differentiate=None, save=None):
    # Below autograd and for every device: what has no kernels there runs in PyTorch.
    _library.impl(name, run_it, "CompositeExplicitAutograd")
    torch.library.register_fake(f"dorajit::{name}", fake, lib=_library)
    if differentiate is not None:
        torch.library.register_autograd(f"dorajit::{name}", differentiate, setup_context=save,
                                        lib=_library)


for _schema in _SCHEMAS:
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))
_register("compose", _compose, _fake_compose, _differentiate_compose, _save_for_compose)
_register("compose_", _compose_into, _fake_compose_into)
_register("compose_inner", _compose_inner, _fake_compose_inner, _differentiate_compose_inner,
          _save_for_compose_inner)
_register("backward", _backward, _fake_backward, _differentiate_backward, _save_for_backward)
_register("norm_assembly", _norm_assembly, _fake_norm_assembly, _differentiate_norm_assembly,
          _save_for_norm_assembly)


# --- calls through them --------------------------------------------------------------------------

def _is_transformed():
    """Inside a transform of torch.func."""
    return torch._C._functorch.maybe_current_level() is not None


# What torch.compiler.assume_constant_result does, which would import the whole compiler: the answer
# holds where it was traced, and a compiled function is guarded by the transforms around it.
_is_transformed._dynamo_marked_constant = True


def compose(lora, base, gain, scale, inplace):
    """fused_dora_compose as operators, and inside a transform of torch.func, which does not go
    through operators that are differentiated in Python, as PyTorch's own; traceable."""
    if _is_transformed():
        result = expression.compose(lora, base, gain, scale)
        return lora.copy_(result) if inplace else result
    differentiable = torch.is_grad_enabled() and (lora.requires_grad or base.requires_grad
                                                  or gain.requires_grad)
    if inplace:
        if differentiable:
            return lora.copy_(compose(lora, base, gain, scale, False))
        _ops.compose_(lora, base, gain, scale)
        return lora
    if differentiable and gain.requires_grad:
        return _ops.compose_inner(lora, base, gain, scale)[0]
    return _ops.compose(lora, base, gain, scale)


def compose_inner(lora, base, gain, scale):
    """As compose, for fused_dora_forward_and_inner."""
    if _is_transformed():
        return expression.compose_inner(lora, base, gain, scale)
    return _ops.compose_inner(lora, base, gain, scale)


def backward(d_out, inner, gain, scale, wanted):
    """As compose, for compose_backward."""
    if _is_transformed():
        return tuple(expression.backward(d_out, inner, gain, scale, wanted, d_out.dtype))
    results = _ops.backward(d_out, inner if wanted[2] else None, gain, scale, wanted, d_out.dtype)
    placed, position = [], 0
    for want in wanted:
        placed.append(results[position] if want else None)
        position += int(want)
    return tuple(placed)


def norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale):
    """As compose, for fused_norm_assembly."""
    if _is_transformed():
        return expression.norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale)
    return _ops.norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale)
