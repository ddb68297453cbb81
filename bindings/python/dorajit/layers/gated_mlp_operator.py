"""dorajit.dora_gated_mlp as operators of torch.library, for torch.compile: one operator per pass.

Each layer has its weight, that of the product (as cast by autocast), A, B and the magnitude, as in
dorajit.layers.linear_operator; the low-rank products have the element type of x. `of_magnitudes` tells which magnitudes are
trained. The tensors that the backward pass needs are outputs: e and u, the outputs of gate and up; `inner` of down, empty
where its magnitude is not trained; S, gain and its divisor of each layer.
"""

import math
import warnings

import torch

from dorajit.layers import gated_mlp, linear_operator, node
from dorajit.norms import norm, precision
from dorajit.operations import torch_library
from dorajit.operations.expression import ACTIVATIONS

_NAME = "dora_gated_mlp"
_LAYERS = "gate", "up", "down"
_PARTS = "weight", "product", "lora_A", "lora_B", "magnitude"  # of a layer


def _tensors(*names, optional=""):
    """The schema of these tensors of each layer."""
    return ", ".join(f"Tensor{optional} {layer}_{name}" for layer in _LAYERS for name in names)


_SCHEMA = (f"{_NAME}(Tensor x, {_tensors(*_PARTS)}, float[] scales, str activation, bool[] of_magnitudes) -> (Tensor out, "
           f"Tensor e, Tensor u, Tensor inner, {_tensors('low', 'gain', 'divisor')})")
_BACKWARD_SCHEMA = (f"{_NAME}_backward(Tensor d_out, Tensor x, Tensor e, Tensor u, Tensor? inner, "
                    f"{_tensors('product', 'lora_A', 'lora_B', 'magnitude', 'low', 'gain', 'divisor')}, float[] scales, "
                    "str activation, bool[] wanted) -> Tensor[]")
_ops = torch.ops.dorajit
_library = torch_library.Library("dorajit", "FRAGMENT")
_checked = set()  # addresses of magnitudes of gate and up that were looked at


def _of_layers(flat, count):
    return [flat[i * count:(i + 1) * count] for i in range(len(_LAYERS))]


# --- the forward pass ----------------------------------------------------------------------------

def _forward(x, *given):
    *flat, scales, activation, of_magnitudes = given
    layers, keeps_inner = _of_layers(flat, len(_PARTS)), of_magnitudes[2]
    calls = []
    with torch.no_grad(), precision.without_autocast(x.device.type):
        for (weight, product, lora_A, lora_B, magnitude), scale in zip(layers, scales):
            a, b = lora_A.to(x.dtype), lora_B.to(x.dtype)
            calls.append(node.Call(product, a, b, None, None, scale, magnitude=magnitude,
                                   of_norm=node.norm_operands(weight, lora_A, lora_B, a, b)))
        _look_at(*(layer[4] for layer, is_trained in zip(layers[:2], of_magnitudes) if is_trained))
        out, lows, inners, _, e, u = gated_mlp.forward(x, calls, activation, (False, False, keeps_inner), False)
        inner = inners[2] if keeps_inner else x.new_empty(0)
        kept = [one for low, call in zip(lows, calls) for one in (low.reshape(-1, low.shape[-1]), call.gain, call.divisor)]
        return tuple(one.contiguous() for one in (out, e, u, inner, *kept))


def _look_at(*magnitudes):
    """Warns of a magnitude that is 0 when it first runs, because e and u do not determine its gradient. It waits for the
    device."""
    for one in magnitudes:
        if one.data_ptr() in _checked or (one.is_cuda and torch.cuda.is_current_stream_capturing()):
            continue
        _checked.add(one.data_ptr())
        if bool((one == 0).any()):
            warnings.warn("a magnitude of gate_proj or up_proj is 0; in a compiled gated MLP its gradient is 0, too. Set "
                          "DORAJIT_MLP=0 to train it", RuntimeWarning, stacklevel=2)


def _fake_forward(x, *given):
    *flat, _, _, of_magnitudes = given
    layers = _of_layers(flat, len(_PARTS))
    made = []
    e, u = (linear_operator.fake_forward(x, *layer, None, 0.0, x.dtype, False) for layer in layers[:2])
    down = linear_operator.fake_forward(e[0], *layers[2], None, 0.0, x.dtype, of_magnitudes[2])
    for _, low, _, factor, divisor in (e, u, down):
        made += low.new_empty((math.prod(low.shape[:-1]), low.shape[-1])), factor, divisor
    return down[0], e[0], u[0], down[2], *made


def _expression(x, *given):
    """The operator in PyTorch's operations, for torch.func transforms."""
    *flat, scales, activation, of_magnitudes = given
    layers = _of_layers(flat, len(_PARTS))
    made = []

    def layer(i, value, keeps=False):
        out, low, inner, factor, divisor = linear_operator.in_pytorch(value, *layers[i], None, scales[i], x.dtype, keeps)
        made.extend((low.reshape(-1, low.shape[-1]), factor, divisor))
        return out, inner

    e, u = layer(0, x)[0], layer(1, x)[0]
    out, inner = layer(2, ACTIVATIONS[activation][0](e) * u, of_magnitudes[2])
    return out, e, u, inner, *made


# --- the backward pass ---------------------------------------------------------------------------

def _backward_calls(x, inner, layers, scales):
    """The layers' Calls for dorajit.layers.gated_mlp."""
    calls = []
    for i, ((product, lora_A, lora_B, magnitude, low, factor, divisor), scale) in enumerate(zip(layers, scales)):
        divisor = divisor if i == 2 else magnitude
        calls.append(node.Call(product, lora_A.to(x.dtype), lora_B.to(x.dtype), divisor, factor, scale, None, None, None,
                               divisor, low, inner if i == 2 else None))
    return calls


def _trained(layers):
    """A and B of each layer, then the magnitudes."""
    return (*(one for layer in layers for one in layer[1:3]), *(layer[3] for layer in layers))


def _backward(d_out, x, e, u, inner, *given):
    *flat, scales, activation, wanted = given
    layers = _of_layers(flat, 7)
    with torch.no_grad(), precision.without_autocast(d_out.device.type):
        calls = _backward_calls(x, inner, layers, scales)
        trained = _trained(layers)
        floats = {node.has_float_products(x, *layer[1:3], call) for layer, call in zip(layers, calls)}
        is_float = floats.pop() if len(floats) == 1 and len({one.dtype for one in trained[6:8]}) == 1 else None
        found = gated_mlp.gradients(tuple(wanted), d_out, x, e, u, activation, calls, trained, is_float, False, x.dtype)
        return [one.contiguous() for one, want in zip(found, wanted) if want]


def _fake_backward(d_out, x, e, u, inner, *given):
    *flat, _, _, wanted = given
    return [one.new_empty(one.shape) for one, want in zip((x, *_trained(_of_layers(flat, 7))), wanted) if want]


def _save(ctx, inputs, output):
    x, *flat, scales, activation, of_magnitudes = inputs
    of_x, *needed = ctx.needs_input_grad[:1 + len(flat)]
    layers, needed = _of_layers(flat, len(_PARTS)), _of_layers(needed, len(_PARTS))
    if any(one[0] or one[1] for one in needed):
        raise RuntimeError(f"{_NAME}: a weight requires grad, for which the operator has no formula; call dorajit.{_NAME}")
    if any(one[4] and not is_trained for one, is_trained in zip(needed, of_magnitudes)):
        raise RuntimeError(f"{_NAME}: a magnitude requires grad, but `of_magnitudes` has it as frozen; pass true for it")
    _, e, u, inner, *made = output
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.wanted = [of_x, *(want for one in needed for want in one[2:4]), *(one[4] for one in needed)]
    ctx.scales, ctx.activation = scales, activation
    kept = [one for layer, of_layer in zip(layers, _of_layers(made, 3)) for one in (*layer[1:], *of_layer)]
    ctx.save_for_backward(x, e, u, inner if needed[2][4] else None, *kept)


def _differentiate(ctx, d_out, *_):
    count = 1 + len(_LAYERS) * len(_PARTS)
    if d_out is None:
        return (None,) * (count + 3)
    x, e, u, inner, *flat = ctx.saved_tensors
    if torch.is_grad_enabled():  # second-order gradients
        layers = _of_layers(flat, 7)
        with torch.no_grad():
            calls = _backward_calls(x, inner, layers, ctx.scales)
        found = gated_mlp.differentiable(ctx.wanted, d_out, x, ctx.activation, calls, _trained(layers))
    else:
        given = iter(_ops.dora_gated_mlp_backward(d_out, x, e, u, inner, *flat, ctx.scales, ctx.activation, ctx.wanted))
        found = [next(given) if want else None for want in ctx.wanted]
    d_x, *found = found
    of_layers = [one for i in range(len(_LAYERS)) for one in (None, None, *found[2 * i:2 * i + 2], found[6 + i])]
    return d_x, *of_layers, None, None, None


for _name in _NAME, f"{_NAME}_forward":
    _library.add(_name, _SCHEMA.replace(_NAME, _name, 1), _forward, _fake_forward)
_library.add(f"{_NAME}_backward", _BACKWARD_SCHEMA, _backward, _fake_backward)
_library.register_node(_NAME, _expression, _differentiate, _save, _ops.dora_gated_mlp_forward)
