"""dorajit.dora_linear as operators of torch.library, for torch.compile: one operator per pass (_SCHEMA, _BACKWARD_SCHEMA).

x, product_weight and the bias are cast by autocast; the weight and the factors are not. dtype is the element type of
the low-rank result. The tensors that the backward pass needs are outputs, so that the compiler saves them; inner is
empty without keeps_inner. Every call of the forward operator computes divisor and gain: so no tensor outlives a call in
the pool of a CUDA graph, and replays use the present weights.
"""

import torch
import torch.nn.functional as F

from dorajit import checks
from dorajit.layers import node
from dorajit.norms import norm, precision
from dorajit.operations import expression, gain, torch_library

_NAME = "dora_linear"
_SCHEMA = (f"{_NAME}(Tensor x, Tensor weight, Tensor product_weight, Tensor lora_A, Tensor lora_B, Tensor magnitude, "
           "Tensor? bias, float scale, ScalarType dtype, bool keeps_inner) -> (Tensor out, Tensor low, Tensor inner, "
           "Tensor gain, Tensor divisor)")
_BACKWARD_SCHEMA = (f"{_NAME}_backward(Tensor d_out, Tensor? x, Tensor weight, Tensor lora_A, Tensor lora_B, "
                    "Tensor magnitude, Tensor? low, Tensor? inner, Tensor gain, Tensor? divisor, float scale, "
                    "ScalarType dtype, ScalarType x_dtype, bool[] wanted) -> Tensor[]")
_ops = torch.ops.dorajit
_library = torch_library.Library("dorajit", "FRAGMENT")


# --- the forward pass ----------------------------------------------------------------------------

def _forward(x, weight, product_weight, lora_A, lora_B, magnitude, bias, scale, dtype, keeps_inner):
    with torch.no_grad(), precision.without_autocast(x.device.type):
        a, b = lora_A.to(dtype), lora_B.to(dtype)
        of_norm = node.norm_operands(weight, lora_A, lora_B, a, b)
        call = node.Call(product_weight, a, b, None, None, scale, of_norm=of_norm, magnitude=magnitude)
        out, low, inner, _ = node.forward(x, call, bias, keeps_inner)
        low = low.view(*x.shape[:-1], low.shape[-1])
        inner = x.new_empty(0) if inner is None else inner
        return tuple(one.contiguous() for one in (out, low, inner, call.gain, call.divisor))


def fake_forward(x, weight, product_weight, lora_A, lora_B, magnitude, bias, scale, dtype, keeps_inner):
    norm.check(weight, lora_A, lora_B)
    checks.same_device(_NAME, weight=weight, x=x)
    rows, columns = weight.shape
    for name, tensor, shape in (("x", x, (*x.shape[:-1], columns)), ("magnitude", magnitude, (rows,)),
                                ("bias", bias, (rows,))):
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ValueError(f"{_NAME}: argument `{name}` has shape {tuple(tensor.shape)}, which does not match "
                             f"`weight` of {tuple(weight.shape)}; give it {shape}")
    if x.dtype != product_weight.dtype:
        raise RuntimeError(f"{_NAME}: argument `x` has elements of {x.dtype}, but `weight` of {product_weight.dtype}; "
                           "give both one type")
    out = x.new_empty((*x.shape[:-1], rows))
    low = x.new_empty((*x.shape[:-1], lora_A.shape[0]), dtype=dtype)
    inner = torch.empty_like(out, dtype=expression.sum_type(low, out)) if keeps_inner else x.new_empty(0)
    norms = weight.new_empty(rows, dtype=norm.sum_type(weight, lora_A, lora_B))
    divisor, factor = gain.with_divisor(magnitude.detach(), norms)
    return out, low, inner, factor, divisor


def in_pytorch(x, weight, product_weight, lora_A, lora_B, magnitude, bias, scale, dtype, keeps_inner):
    """The operator in PyTorch's operations, for torch.func transforms."""
    a, b = lora_A.to(dtype), lora_B.to(dtype)
    of_norm = node.norm_operands(weight, lora_A, lora_B, a, b)
    divisor, factor = gain.with_divisor(magnitude, norm.weight_norm(*of_norm, scale))
    low = F.linear(x.to(dtype), a)
    result = F.linear(x, product_weight, bias)
    out, inner = expression.compose_residual(F.linear(low, b), result, factor, bias, scale)
    return out.to(x.dtype), low, inner if keeps_inner else x.new_empty(0), factor, divisor


# --- the backward pass ---------------------------------------------------------------------------

def _backward(d_out, x, weight, lora_A, lora_B, magnitude, low, inner, factor, divisor, scale, dtype, x_dtype, wanted):
    with torch.no_grad(), precision.without_autocast(d_out.device.type):
        call = node.Call(weight, lora_A.to(dtype), lora_B.to(dtype), divisor, factor, scale, low=low, inner=inner)
        found = node.gradients((*wanted, False), d_out, x, None, call, (lora_A, lora_B, magnitude, None), x_dtype)
        return [one.contiguous() for one in found if one is not None]


def _fake_backward(d_out, x, weight, lora_A, lora_B, magnitude, low, inner, factor, divisor, scale, dtype, x_dtype, wanted):
    made = ((d_out, (*d_out.shape[:-1], weight.shape[1]), x_dtype), *(
        (one, one.shape, one.dtype) for one in (lora_A, lora_B, magnitude)))
    return [like.new_empty(shape, dtype=dtype) for want, (like, shape, dtype) in zip(wanted, made) if want]


def _save(ctx, inputs, output):
    x, _, product_weight, lora_A, lora_B, magnitude, _, scale, dtype, keeps_inner = inputs
    _, low, inner, factor, divisor = output
    of_x, of_weight, of_product_weight, of_a, of_b, of_magnitude, of_bias = ctx.needs_input_grad[:7]
    if of_weight or of_product_weight or of_bias:
        raise RuntimeError(f"{_NAME}: argument `{'bias' if of_bias else 'weight'}` requires grad, for which the "
                           f"operator has no formula; call dorajit.{_NAME}")
    if of_magnitude and not keeps_inner:
        raise RuntimeError(f"{_NAME}: argument `magnitude` requires grad, and its gradient needs inner; pass "
                           "keeps_inner=True")
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.wanted = wanted = of_x, of_a, of_b, of_magnitude
    ctx.scale, ctx.dtype, ctx.x_dtype = scale, dtype, x.dtype
    ctx.save_for_backward(x if of_a or sum(wanted) > 1 else None, product_weight, lora_A, lora_B, magnitude,
                          low if of_b else None, inner if of_magnitude else None, factor,
                          divisor if of_magnitude else None)


def _differentiate(ctx, d_out, *_):
    if d_out is None:
        return (None,) * 10
    x, weight, lora_A, lora_B, magnitude, *made = ctx.saved_tensors
    wanted, scale = ctx.wanted, ctx.scale
    if torch.is_grad_enabled():  # second-order gradients
        low, inner, factor, divisor = made
        with torch.no_grad():
            call = node.Call(weight, lora_A.to(ctx.dtype), lora_B.to(ctx.dtype), divisor, factor, scale, low=low,
                             inner=inner)
        *found, _ = node.differentiate((*wanted, False), d_out, x, None, call, (lora_A, lora_B, magnitude, None),
                                       ctx.x_dtype)
    else:
        given = iter(_ops.dora_linear_backward(d_out, x if wanted[1] else None, weight, lora_A, lora_B, magnitude,
                                               *made, scale, ctx.dtype, ctx.x_dtype, wanted))
        found = [next(given) if want else None for want in wanted]
    d_x, d_a, d_b, d_magnitude = found
    return d_x, None, None, d_a, d_b, d_magnitude, None, None, None, None


for _name in _NAME, f"{_NAME}_forward":
    _library.add(_name, _SCHEMA.replace(_NAME, _name, 1), _forward, fake_forward)
_library.add(f"{_NAME}_backward", _BACKWARD_SCHEMA, _backward, _fake_backward)
_library.register_node(_NAME, in_pytorch, _differentiate, _save, _ops.dora_linear_forward)
