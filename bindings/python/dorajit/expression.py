"""The operations in plain PyTorch, with the contract of the kernels (docs/numerics.md).

Arithmetic is done in float32, in float64 if an operand is float64, in complex numbers if one is
complex; results are rounded once. Everything here is differentiable as often as one likes, and works
on any device, layout and tensor subclass and under torch.func.
"""

import torch

_DENSE = (torch.strided, torch.jagged)


def compute_type(*tensors):
    """The element type in which operands of these types are computed."""
    wanted = torch.float32
    for tensor in tensors:
        dtype = tensor.dtype
        # Types of 8 bits promote with no other.
        wanted = torch.promote_types(wanted, dtype if dtype.itemsize > 1 else torch.float32)
    return wanted


def sum_type(lora, result):
    """The element type of result + lora. Types of 8 bits promote with no other, and count for nothing."""
    if lora.dtype == result.dtype or result.dtype.itemsize == 1:
        return lora.dtype
    return result.dtype if lora.dtype.itemsize == 1 else torch.promote_types(lora.dtype, result.dtype)


def _widened(*tensors):
    dtype = compute_type(*tensors)
    return [(tensor if tensor.layout in _DENSE else tensor.to_dense()).to(dtype)
            for tensor in tensors]


def over(gain, matrix):
    """The gain without leading dimensions of one element that the matrix does not have."""
    return gain.reshape(gain.shape[gain.dim() - matrix.dim():]) if gain.dim() > matrix.dim() else gain


def rounded(result, dtype):
    """The result in the element type; what is imaginary is dropped for a real one."""
    if result.is_complex() and not dtype.is_complex:
        result = result.real
    return result.to(dtype)


def compose(lora, base, gain, scale):
    """(gain - 1) * base + gain * (scale * lora), in lora's element type."""
    dtype = lora.dtype
    lora, base, gain = _widened(lora, base, gain)
    gain = over(gain, lora)
    return rounded((gain - 1) * base + gain * (scale * lora), dtype)


def compose_inner(lora, base, gain, scale):
    """compose, and scale * lora + base, both in lora's element type."""
    dtype = lora.dtype
    lora, base, gain = _widened(lora, base, gain)
    gain = over(gain, lora)
    scaled = scale * lora
    out = (gain - 1) * base + gain * scaled
    return rounded(out, dtype), rounded(scaled + base, dtype)


def backward(d_out, inner, gain, scale, wanted, base_dtype):
    """The gradients of compose for lora, base and gain; None where `wanted` is false."""
    dtype, gain_dtype, gain_shape = d_out.dtype, gain.dtype, gain.shape
    if wanted[2]:
        d_out, inner, gain = _widened(d_out, inner, gain)
    else:
        d_out, gain = _widened(d_out, gain)
    gain = over(gain, d_out)
    d_lora = rounded((gain * scale).conj() * d_out, dtype) if wanted[0] else None
    d_base = rounded((gain - 1).conj() * d_out, base_dtype) if wanted[1] else None
    d_gain = None
    if wanted[2]:
        total = (inner.conj() * d_out).sum_to_size(gain.shape)
        d_gain = rounded(total, gain_dtype).reshape(gain_shape)
    return d_lora, d_base, d_gain


def compose_residual(lora, result, gain, bias, scale, dtype):
    """result + compose over result - bias, and scale * lora + (result - bias), both of the element
    type; the bias may be None."""
    lora, result, gain, *biases = _widened(lora, result, gain, *(() if bias is None else (bias,)))
    gain = over(gain, lora)
    base = result - over(biases[0].reshape(gain.shape), lora) if biases else result
    scaled = scale * lora
    out = result + ((gain - 1) * base + gain * scaled)
    return rounded(out, dtype), rounded(scaled + base, dtype)


def residual_backward(d_out, inner, gain, scale, wanted, lora_dtype, result_dtype):
    """The gradients of compose_residual for lora and result, in these types, and gain; None where
    `wanted` is false."""
    d_lora, _, d_gain = backward(d_out, inner, gain, scale, (wanted[0], False, wanted[2]), None)
    d_result = None
    if wanted[1]:
        wide, wide_gain = _widened(d_out, gain)
        d_result = rounded(over(wide_gain, wide).conj() * wide, result_dtype)
    return None if d_lora is None else d_lora.to(lora_dtype), d_result, d_gain


def second_backward(d_out, inner, gain, scale, gradients, wanted, is_residual=False):
    """The gradients of backward, or residual_backward, for d_out, inner and gain; None where `wanted`
    is false.

    `gradients` are those of d_lora, d_base and d_gain, None where there is none.
    """
    types = [None if one is None else one.dtype for one in (d_out, inner, gain)]
    gain_shape = gain.shape
    present = [one for one in (d_out, inner, gain, *gradients) if one is not None]
    widened = iter(_widened(*present))
    d_out, inner, gain, of_lora, of_base, of_gain = (
        None if one is None else next(widened) for one in (d_out, inner, gain, *gradients))
    gain = over(gain, d_out)
    to_d_out = to_inner = to_gain = None
    through_gain = torch.zeros_like(d_out)
    if wanted[0]:
        to_d_out = torch.zeros_like(d_out)
    if of_lora is not None:
        through_gain = through_gain + scale * of_lora.conj() * d_out
        to_d_out = to_d_out + gain * scale * of_lora if wanted[0] else None
    if of_base is not None:
        through_gain = through_gain + of_base.conj() * d_out
        of_d_out = gain if is_residual else gain - 1
        to_d_out = to_d_out + of_d_out * of_base if wanted[0] else None
    if of_gain is not None:
        of_gain = of_gain.reshape(gain.shape)
        to_d_out = to_d_out + of_gain * inner if wanted[0] else None
        to_inner = rounded(of_gain.conj() * d_out, types[1]) if wanted[1] else None
    if wanted[0]:
        to_d_out = rounded(to_d_out, types[0])
    if wanted[2]:
        to_gain = rounded(through_gain.sum_to_size(gain.shape), types[2]).reshape(gain_shape)
    return to_d_out, to_inner, to_gain


def norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale):
    """sqrt(max((w_norm_sq + 2 scale * cross_term) + scale^2 * ba_norm_sq, 0)), NaN kept."""
    dtype = w_norm_sq.dtype
    w, cross, ba = _widened(w_norm_sq, cross_term, ba_norm_sq)
    square = (w + (2.0 * scale) * cross) + (scale * scale) * ba
    # PyTorch's square root of float32 may be off by a unit; that of float64, rounded, is not.
    return rounded(square.clamp_min(0).double().sqrt().to(square.dtype), dtype)


def norm_assembly_backward(d_norm, w_norm_sq, cross_term, ba_norm_sq, scale, wanted):
    """The gradients of norm_assembly for its terms; None where `wanted` is false."""
    terms = w_norm_sq, cross_term, ba_norm_sq
    w, cross, ba = _widened(*terms)
    square = (w + (2.0 * scale) * cross) + (scale * scale) * ba
    is_kept = square >= 0
    # No square root, and no derivative of one, of what is not kept.
    norm = torch.where(is_kept, square, 1).double().sqrt()
    d_square = torch.where(is_kept, (d_norm.double() / (2 * norm)).to(square.dtype), 0)
    factors = 1.0, 2.0 * scale, scale * scale
    return [rounded(factor * d_square, term.dtype) if want else None
            for factor, term, want in zip(factors, terms, wanted)]


def result_type(operation, *inputs):
    """The element type of what an operation computes of these inputs."""
    return sum_type(*inputs[:2]) if operation == "compose_residual" else inputs[0].dtype


def outputs(operation, inputs, scale, types):
    """The outputs of an operation of that name, None where `types` is; or None if it is none of these.

    Args:
        types: the element type of each output, or None.
    """
    wanted = tuple(one is not None for one in types)
    if operation == "compose":
        return (compose(*inputs, scale),)
    if operation == "compose_inner":
        return compose_inner(*inputs, scale)
    if operation == "compose_residual":
        out, inner = compose_residual(*inputs, scale, types[0])
        return out, inner if wanted[1] else None
    if operation == "backward":
        return backward(*inputs, scale, wanted, types[1])
    if operation == "residual_backward":
        return residual_backward(*inputs, scale, wanted, types[0], types[1])
    if operation == "norm_assembly":
        return (norm_assembly(*inputs, scale),)
    return None
