"""The operations in plain PyTorch, with the numerical contract of the kernels (docs/numerics.md).

Arithmetic is done in float32, in float64 if an operand is float64; results are rounded once. All functions are
differentiable any number of times, and work on any device and tensor subclass and under torch.func. The decorator of
each adds its element types and gradients to `formulas`, from which the operators of torch.library are generated.
"""

import functools
from typing import Callable, NamedTuple, Optional

import torch
import torch.nn.functional as F

from dorajit.operations.gain import with_divisor

_aten = torch.ops.aten


class Formula(NamedTuple):
    """An operation in PyTorch's operations."""

    # (*inputs, *scalars, *more) -> the output, or a tuple of all outputs. For an operation that computes gradients, `more`
    # is which of them are wanted, and the free element types.
    compute: Callable
    result_type: Callable = lambda first, *_: first.dtype  # (*inputs) -> that of the outputs; not used for gradients
    # Output -> name of the operator's argument for its element type, which callers choose; other gradients have the types
    # of their models.
    free_types: dict[str, str] = {}
    is_differentiable: bool = False  # whether the operator has gradients, those of `compute`
    backward: Optional[str] = None   # for a composition, instead: the operation of its backward pass, which takes inner


formulas = {}  # name of an operation -> its Formula


def _formula(name, **rest):
    """Decorator that registers the function as the formula of an operation."""
    def register(compute):
        formulas[name] = Formula(compute, **rest)
        return compute
    return register


def output_types(operation, inputs, more=(), num_outputs=None):
    """The element type of each output of a call, None where it is left out. `more` as for Formula.compute; `num_outputs`:
    how many are wanted of an operation that computes no gradients, None: the required ones."""
    if operation.makes_gradients:
        return [None if not want else more[place] if place else operation.model_of(output, inputs).dtype
                for output, place, want in zip(operation.outputs, places_of_types(operation), more[0])]
    formula = formulas.get(operation.name)
    num_outputs = operation.num_required if num_outputs is None else num_outputs
    dtype = formula.result_type(*inputs) if formula else inputs[0].dtype
    return [dtype] * num_outputs + [None] * (len(operation.outputs) - num_outputs)


@functools.cache
def places_of_types(operation):
    """For each output of an operation that computes gradients the index of its element type in `more`; 0 if the
    type is not free."""
    formula = formulas.get(operation.name)
    places = {name: place for place, name in enumerate(formula.free_types if formula else (), 1)}
    return [places.get(one.name, 0) for one in operation.outputs]


def outputs(operation, inputs, scalars, more=(), num_outputs=None):
    """The outputs of an operation, None for those that are left out; arguments as for output_types. None if the
    operation has no formula here."""
    formula = formulas.get(operation.name)
    if formula is None:
        return None
    made = formula.compute(*inputs, *scalars, *more)
    if operation.makes_gradients:
        return tuple(made)
    made = made if isinstance(made, tuple) else (made,)
    num_outputs = operation.num_required if num_outputs is None else num_outputs
    return made[:num_outputs] + (None,) * (len(operation.outputs) - num_outputs)


def sum_type(lora, result):
    """The element type of result + lora. PyTorch does not promote 8-bit types, so they are ignored."""
    one, other = lora.dtype, result.dtype
    if one is other or other.itemsize == 1:
        return one
    return other if one.itemsize == 1 else torch.promote_types(one, other)


def _widened(*tensors):
    """The tensors in the element type of arithmetic on them."""
    dtype = torch.float32
    for tensor in tensors:
        if tensor.dtype.itemsize > 1:  # PyTorch does not promote 8-bit types
            dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]


def over(gain, matrix):
    """The gain without leading dimensions of size 1 that the matrix does not have."""
    return gain.reshape(gain.shape[gain.dim() - matrix.dim():]) if gain.dim() > matrix.dim() else gain


def over_channels(tensor, gain):
    """The tensor in the gain's shape if it has as many elements, else unchanged."""
    return tensor.reshape(gain.shape) if tensor.numel() == gain.numel() else tensor


def without_bias(result, bias, gain):
    """A base result minus the base layer's bias, which may be None, in the result's element type."""
    return result if bias is None else result - over(over_channels(bias.to(result.dtype), gain), result)


@_formula("compose", backward="backward")
def compose(lora, base, gain, scale):
    """(gain - 1) * base + gain * (scale * lora), in lora's element type."""
    dtype = lora.dtype
    lora, base, gain = _widened(lora, base, gain)
    gain = over(gain, lora)
    return ((gain - 1) * base + gain * (scale * lora)).to(dtype)


@_formula("compose_inner", backward="backward")
def compose_inner(lora, base, gain, scale):
    """(compose, scale * lora + base), both in lora's element type."""
    wide_lora, wide_base, _ = _widened(lora, base, gain)
    return compose(lora, base, gain, scale), (scale * wide_lora + wide_base).to(lora.dtype)


@_formula("backward", free_types={"d_base": "base_dtype"}, is_differentiable=True)
def backward(d_out, inner, gain, scale, wanted, base_dtype):
    """The gradients of lora, base and gain through compose; None where `wanted` is false."""
    dtype, gain_dtype, gain_shape = d_out.dtype, gain.dtype, gain.shape
    d_out, gain, *inners = _widened(d_out, gain, *((inner,) if wanted[2] else ()))
    gain = over(gain, d_out)
    d_lora = ((gain * scale) * d_out).to(dtype) if wanted[0] else None
    d_base = ((gain - 1) * d_out).to(base_dtype) if wanted[1] else None
    d_gain = (inners[0] * d_out).sum_to_size(gain.shape).to(gain_dtype).reshape(gain_shape) if wanted[2] else None
    return d_lora, d_base, d_gain


@_formula("compose_residual", result_type=lambda lora, result, *_: sum_type(lora, result),
          backward="residual_backward")
def compose_residual(lora, result, gain, bias, scale, dtype=None):
    """(result + compose of base, scale * lora + base) with base = result - bias, both of the element type `dtype`,
    by default that of result + lora. The bias may be None."""
    dtype = dtype or sum_type(lora, result)
    lora, result, gain, *biases = _widened(lora, result, gain, *(() if bias is None else (bias,)))
    gain = over(gain, lora)
    base = result - over(biases[0].reshape(gain.shape), lora) if biases else result
    scaled = scale * lora
    out = result + ((gain - 1) * base + gain * scaled)
    return out.to(dtype), (scaled + base).to(dtype)


@_formula("compose_low_rank", result_type=lambda low, lora_B, result, *_: sum_type(low, result))
def compose_low_rank(low, lora_B, result, gain, bias, scale):
    """compose_residual with lora = low @ lora_B^T, a product that is not rounded to the type of its factors. With a
    scale of 0 the product is taken as zeros."""
    dtype = sum_type(low, result)
    low, lora_B = _widened(low, lora_B)
    product = low @ lora_B.mT if scale != 0 else low.new_zeros(low.shape[:-1] + lora_B.shape[:1])
    return compose_residual(product, result, gain, bias, scale, dtype)


@_formula("residual_backward", free_types={"d_lora": "lora_dtype", "d_result": "result_dtype"},
          is_differentiable=True)
def residual_backward(d_out, inner, gain, scale, wanted, lora_dtype, result_dtype):
    """The gradients of lora, result and gain through compose_residual, the first two in the given types; None where
    `wanted` is false."""
    d_lora, _, d_gain = backward(d_out, inner, gain, scale, (wanted[0], False, wanted[2]), None)
    d_result = None
    if wanted[1]:
        wide, wide_gain = _widened(d_out, gain)
        d_result = (over(wide_gain, wide) * wide).to(result_dtype)
    return None if d_lora is None else d_lora.to(lora_dtype), d_result, d_gain


@_formula("magnitude_backward", is_differentiable=True, free_types={
    "d_lora": "lora_dtype", "d_result": "result_dtype", "d_magnitude": "magnitude_dtype"})
def magnitude_backward(d_out, inner, gain, divisor, scale, wanted, lora_dtype, result_dtype, magnitude_dtype):
    """residual_backward for a gain of magnitude / divisor: d_magnitude = d_gain / divisor, instead of d_gain."""
    wide = _widened(*(one for one in (d_out, inner, gain, divisor) if one is not None))[0].dtype
    d_lora, d_result, d_gain = residual_backward(d_out, inner, gain.to(wide), scale, wanted, lora_dtype, result_dtype)
    return d_lora, d_result, None if d_gain is None else (d_gain / divisor.to(wide)).to(magnitude_dtype)


# Name of the activation of a gated MLP -> (the function, (gradient, input) -> the gradient of its input).
ACTIVATIONS = {
    "silu": (F.silu, _aten.silu_backward.default),
    "gelu": (F.gelu, _aten.gelu_backward.default),
    "gelu_tanh": (lambda gate: F.gelu(gate, approximate="tanh"),
                  lambda d_out, gate: _aten.gelu_backward.default(d_out, gate, approximate="tanh")),
}


def _register_gated(activation, function, derivative):
    @_formula(f"gated_{activation}", is_differentiable=True)
    def gated(gate, up):
        """act(gate) * up, in gate's element type, to which act(gate) is rounded as well."""
        activated = function(*_widened(gate)).to(gate.dtype)
        return torch.mul(*_widened(activated, up)).to(gate.dtype)

    @_formula(f"gated_{activation}_backward")
    def gated_backward(d_out, gate, up, gate_gain, up_gain, gate_magnitude, up_magnitude, wanted):
        """(act(gate) * up, gate_gain * d_gate, up_gain * d_up, the gradients of both magnitudes); None where `wanted` is
        false. A magnitude of 0 has the gradient 0."""
        dtype, types = gate.dtype, (*(d_out.dtype,) * 3, *(gate_gain.dtype,) * 2)
        d_out, gate, up, gate_gain, up_gain = _widened(d_out, gate, up, gate_gain, up_gain)
        activated = function(gate).to(dtype).to(gate.dtype)
        d_gate, d_up = derivative(d_out * up, gate), d_out * activated
        sums = None, None
        if wanted[3]:
            sums = [torch.where(magnitude == 0, 0, (d_one * one).sum_to_size(magnitude.shape) / magnitude)
                    for d_one, one, magnitude in ((d_gate, gate, gate_magnitude), (d_up, up, up_magnitude))]
        made = activated * up, over(gate_gain, gate) * d_gate, over(up_gain, up) * d_up, *sums
        return tuple(one.to(of_one) if want else None for one, of_one, want in zip(made, types, wanted))


for _one in ACTIVATIONS.items():
    _register_gated(_one[0], *_one[1])


@_formula("norm_assembly", is_differentiable=True)
def norm_assembly(w_norm_sq, cross, ba_norm_sq, scale):
    """sqrt(max((w_norm_sq + 2 scale * cross) + scale^2 * ba_norm_sq, 0)), NaN kept."""
    dtype = w_norm_sq.dtype
    w, cross, ba = _widened(w_norm_sq, cross, ba_norm_sq)
    square = (w + (2.0 * scale) * cross) + (scale * scale) * ba
    is_negative = square < 0
    # Negative squares are replaced by 1 before the square root, so that neither it nor its derivative is NaN. PyTorch's
    # float32 square root may be off by one ulp; the float64 one, rounded, is correct.
    root = torch.where(is_negative, 1, square).double().sqrt().to(square.dtype)
    return torch.where(is_negative, 0, root).to(dtype)


@_formula("weight_norm", free_types={"norm": "norm_dtype", "norm_square": "square_dtype",
                                     "gain": "gain_dtype", "divisor": "divisor_dtype"})
def weight_norm(weight, lora_A, lora_B, magnitude, scale, wanted, *types):
    """(norm, norm_square, gain, divisor) of the rows of weight + scale * lora_B @ lora_A, in the given types; None
    where `wanted` is false.

    Computed in float64, because two large terms may cancel; no setting of the process lowers its precision."""
    if any(wanted[2:]) and magnitude is None:
        raise ValueError("weight_norm: argument `magnitude` is None, but the gain is computed from it; pass it")
    update = lora_B.double() @ lora_A.double()
    square = (weight.double() + scale * update).square().sum(-1)
    norm = square.sqrt()
    divisor, gain = (None, None) if magnitude is None else with_divisor(magnitude, norm)
    made = norm, square, gain, divisor
    return tuple(one.to(dtype) if want else None for one, want, dtype in zip(made, wanted, types))
