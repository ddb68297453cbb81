"""Each operation once, without autograd: by a kernel, or in PyTorch where no kernel will do.

Arguments are those of the public functions (dorajit.ops). Results that are not given are allocated
by PyTorch, with the layout that torch.empty_like gives them.
"""

import torch

from dorajit import _native, checks, dispatch, errors, expression
from dorajit.control import state

_empty_like = torch.empty_like


def _may_run(operation, **likes):
    """Whether there may be a kernel for the operation, whose results are to have the layouts of these
    tensors."""
    if not state.enabled:
        return False
    for name, tensor in likes.items():
        if tensor.layout is not torch.strided:
            dispatch.require_native(operation, dispatch.Plan(dispatch.unfit(name, tensor)))
            return False
    return True


def compose(lora, base, gain, scale, out=None):
    """(gain - 1) * base + gain * (scale * lora) in a new tensor, or in `out`, which may be lora."""
    if out is not None:
        checks.writable("fused_dora_compose", out)
    if _may_run("compose", lora=lora):
        target = _empty_like(lora) if out is None else out
        try:
            _native.compose(lora, base, gain, target, scale)
            return target
        except errors.Error as error:
            views = _views(error, "compose", {"lora": lora, "base": base, "out": target}, gain)
        if views is not None:
            (lora, base, into), gain = views
            _native.compose(lora, base, gain, into, scale)
            return target
    else:
        checks.compose("compose", lora, base, gain)
    result = expression.compose(lora, base, gain, scale)
    return result if out is None else out.copy_(result)


def compose_inner(lora, base, gain, scale, out=None):
    """compose, and scale * lora + base in a new tensor of lora's type."""
    if _may_run("compose_inner", lora=lora):
        if out is None:
            made = _native.compose_inner_directly(lora, base, gain, scale)
            if made is not None:
                return made
        target = _empty_like(lora) if out is None else out
        inner = _empty_like(lora)
        try:
            _native.compose_inner(lora, base, gain, target, inner, scale)
            return target, inner
        except errors.Error as error:
            views = _views(error, "compose_inner",
                           {"lora": lora, "base": base, "out": target, "inner": inner}, gain)
        if views is not None:
            (lora, base, into, into_inner), gain = views
            _native.compose_inner(lora, base, gain, into, into_inner, scale)
            return target, inner
    else:
        checks.compose("compose_inner", lora, base, gain)
    result, inner = expression.compose_inner(lora, base, gain, scale)
    return (result if out is None else out.copy_(result)), inner


def backward(d_out, inner, gain, scale, wanted, base_dtype):
    """The gradients for lora, base and gain; None where `wanted` is false.

    d_lora has the type of d_out. inner is neither needed nor read without d_gain.
    """
    inner = inner if wanted[2] else None
    if state.enabled:
        found = _native.backward_directly(d_out, inner, gain, scale, wanted, d_out.dtype, base_dtype)
        if found is not None:
            return found
    found = _native_backward("backward", d_out, inner, gain, scale, wanted,
                             (d_out.dtype, base_dtype))
    if found is None:
        return expression.backward(d_out, inner, gain, scale, wanted, base_dtype)
    return found


def compose_residual(lora, result, gain, bias, scale, keeps_inner):
    """result + compose over base = result - bias in a new tensor of the type of result + lora, and
    scale * lora + base in that type or None; the bias may be None."""
    if bias is not None and bias.dim() != gain.dim():
        bias = dispatch.over_channels(bias, gain)
    if state.enabled:
        made = _native.compose_residual_directly(lora, result, gain, bias, scale, keeps_inner)
        if made is not None:
            return made
    dtype = expression.sum_type(lora, result)
    if _may_run("compose_residual", lora=lora):
        out = _empty_like(lora, dtype=dtype)
        inner = _empty_like(out) if keeps_inner else None
        try:
            _native.compose_residual(lora, result, gain, bias, out, inner, scale)
            return out, inner
        except errors.Error as error:
            checks.compose_residual("compose_residual", lora, result, gain, bias)
            answer, biased = dispatch.retry_with_bias(
                error, {"lora": lora, "result": result, "out": out, "inner": inner}, gain, bias)
        if answer.reason is None:
            views = answer.matrices
            _native.compose_residual(*views[:2], answer.gain, biased, *views[2:], scale)
            return out, inner
        dispatch.require_native("compose_residual", answer)
    else:
        checks.compose_residual("compose_residual", lora, result, gain, bias)
    out, inner = expression.compose_residual(lora, result, gain, bias, scale, dtype)
    return out, inner if keeps_inner else None


def residual_backward(d_out, inner, gain, scale, wanted, lora_dtype, result_dtype):
    """The gradients for lora and the base result, in these types, and gain; None where `wanted` is
    false. Otherwise as backward."""
    inner = inner if wanted[2] else None
    types = lora_dtype, result_dtype
    if state.enabled:
        found = _native.residual_backward_directly(d_out, inner, gain, scale, wanted, *types)
        if found is not None:
            return found
    found = _native_backward("residual_backward", d_out, inner, gain, scale, wanted, types)
    if found is None:
        return expression.residual_backward(d_out, inner, gain, scale, wanted, *types)
    return found


def _native_backward(operation, d_out, inner, gain, scale, wanted, types):
    """The gradients by a kernel that may need other views; None if PyTorch is to do it."""
    if not any(wanted) or not _may_run(operation, d_out=d_out, mag_norm_scale=gain):
        checks.backward(operation, d_out, inner, gain)
        return None
    kernel = getattr(_native, operation)
    d_lora, d_base, d_gain = gradients = _gradients(d_out, gain, wanted, types)
    try:
        kernel(d_out, inner, gain, d_lora, d_base, d_gain, scale)
        return gradients
    except errors.Error as error:
        checks.backward(operation, d_out, inner, gain)
        answer = dispatch.retry(error, _matrices(d_out, inner, gradients), gain)
    if answer.strides_only:
        d_out = d_out.contiguous()
        inner = None if inner is None else inner.contiguous()
        gradients = _gradients(d_out, gain, wanted, types)
        answer = dispatch.plan(_matrices(d_out, inner, gradients), gain)
    if answer.reason is None:
        d_out, inner, d_lora, d_base = answer.matrices
        d_gain = None if gradients[2] is None else gradients[2].view(answer.gain.shape)
        kernel(d_out, inner, answer.gain, d_lora, d_base, d_gain, scale)
        return gradients
    dispatch.require_native(operation, answer)
    return None


def norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale):
    """The row norms of W + scale B A in a new tensor."""
    if _may_run("norm_assembly", w_norm_sq=w_norm_sq):
        norm = _empty_like(w_norm_sq)
        try:
            _native.norm_assembly(w_norm_sq, cross_term, ba_norm_sq, norm, scale)
            return norm
        except errors.Error as error:
            checks.norm_assembly("norm_assembly", w_norm_sq, cross_term, ba_norm_sq)
            answer = dispatch.retry(error, {"w_norm_sq": w_norm_sq, "cross_term": cross_term,
                                            "ba_norm_sq": ba_norm_sq, "norm": norm})
        if answer.reason is None:
            _native.norm_assembly(*answer.matrices, scale)
            return norm
        dispatch.require_native("norm_assembly", answer)
    else:
        checks.norm_assembly("norm_assembly", w_norm_sq, cross_term, ba_norm_sq)
    return expression.norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale)


def _views(error, operation, matrices, gain):
    """What a kernel takes instead: matrices and gain; None if PyTorch is to do it."""
    checks.compose(operation, matrices["lora"], matrices["base"], gain)
    answer = dispatch.retry(error, matrices, gain)
    if answer.reason is None:
        return answer.matrices, answer.gain
    dispatch.require_native(operation, answer)
    return None


def _gradients(d_out, gain, wanted, types):
    return (_empty_of(d_out, types[0]) if wanted[0] else None,
            _empty_of(d_out, types[1]) if wanted[1] else None,
            _empty_like(gain) if wanted[2] else None)


def _empty_of(tensor, dtype):
    return _empty_like(tensor) if dtype is tensor.dtype else _empty_like(tensor, dtype=dtype)


def _matrices(d_out, inner, gradients):
    return {"d_out": d_out, "inner": inner, "d_lora": gradients[0], "d_base": gradients[1]}
