"""A gated MLP with DoRA layers, down(act(gate(x)) * up(x)), as one autograd node.

Nobody else can write the outputs e and u of gate and up, so their `inner` is not saved: without a bias it is e / g and
u / g, and

    d_magnitude = (sum of d_e * e) / magnitude

(0 for a magnitude of 0). The activation's output a = act(e) * u is computed again. Saved of the activations' size are x,
e, u and `inner` of down.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dorajit.layers import linear, node, recomputation, saved_output
from dorajit.layers.base_weight import Quantized
from dorajit.operations import eligibility

_aten = torch.ops.aten
# Name -> (the function, (gradient, input) -> the gradient of its input).
ACTIVATIONS = {
    "silu": (F.silu, _aten.silu_backward.default),
    "gelu": (F.gelu, _aten.gelu_backward.default),
    "gelu_tanh": (lambda e: F.gelu(e, approximate="tanh"),
                  lambda d, e: _aten.gelu_backward.default(d, e, approximate="tanh")),
}


class Projection(NamedTuple):
    """The parameters of a DoRA layer of the MLP.

    Attributes:
        weight: [out_features, in_features].
        lora_A, lora_B: [rank, in_features], [out_features, rank].
        magnitude: [out_features].
        scale: a float.
    """

    weight: Tensor
    lora_A: Tensor
    lora_B: Tensor
    magnitude: Tensor
    scale: float


def dora_gated_mlp(x: Tensor, gate: Projection, up: Projection, down: Projection, activation: str = "silu") -> Tensor:
    """dora_linear(act(dora_linear(x, *gate)) * dora_linear(x, *up), *down).

    Args:
        x: [..., in_features].
        gate, up, down: the layers, without biases.
        activation: "silu", "gelu" or "gelu_tanh".

    Returns:
        [..., out_features]. Values and gradients are those of the three calls, up to rounding; a call that the node does
        not serve runs as these.

    Raises:
        ValueError: the activation has another name. Also the errors of dora_linear.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"dora_gated_mlp: argument `activation` is {activation!r}; give one of "
                         f"{', '.join(map(repr, ACTIVATIONS))}")
    layers = gate, up, down
    out = at_once([(None, *layer, None) for layer in layers], x, activation)
    return _layer_by_layer(x, *layers, activation) if type(out) is str else out


def at_once(layers, x, activation):
    """The output of the node, or of launches without a node where no graph is built; a text that tells why if the layers
    have to be called one by one.

    Args:
        layers: for each the arguments of linear.prepare without x.
    """
    if eligibility.is_compiling():
        return "torch.compile traces the layers one by one"
    for _, weight, _, _, _, _, bias, *others in layers:
        if type(weight) is Quantized or bias is not None or others[1:] not in ([], [None]):
            return "a layer has a quantized weight, a bias or dropout"
    prepared = []
    for layer, *parts in layers:
        made = linear.prepare(layer, x, *parts)
        if type(made) is str:
            return made
        prepared.append(made)
        x = made.x  # cast once
    calls = [one.call for one in prepared]
    first = prepared[0]
    if any(one.a.dtype is not first.x.dtype for one in calls):
        return "the low-rank products have another element type than the base products"
    if eligibility.AUTOGRAD not in [one.seen for one in prepared]:
        out = _forward(first.x, calls, activation, False)[0]
    else:
        trained = [one for layer in layers for one in layer[2:4]]
        out = GatedMlp.apply(first.x, calls, activation, *trained, *(one.magnitude for one in calls))
    return out if first.result is first.product else out.to(first.result)


def _forward(x, calls, activation, keeps_inner):
    """(output, S of the three, e, u, inner of down)."""
    gate, up, down = calls
    e, low_gate, _, _ = node.forward(x, gate, None, False)
    u, low_up, _, _ = node.forward(x, up, None, False)
    a = ACTIVATIONS[activation][0](e).mul_(u)
    out, low_down, inner, _ = node.forward(a, down, None, keeps_inner)
    return out, (low_gate, low_up, low_down), e, u, inner


class GatedMlp(torch.autograd.Function):
    """The node. Its trained inputs are A and B of gate, up and down, and their magnitudes."""

    @staticmethod
    def forward(ctx, x, calls, activation, *trained):
        of_magnitude = ctx.needs_input_grad[11]
        hooks = recomputation.top_hooks(False)
        is_first = hooks is not None and recomputation.is_first_run(hooks)
        out, lows, e, u, inner = _forward(x, calls, activation, of_magnitude and not is_first)
        ctx.set_materialize_grads(False)
        if is_first and of_magnitude:  # saves nothing, but tensors of the same shapes and types as the second run
            inner = out.detach()
        saved, held = [x, e, u, inner, *lows], []
        for call in calls:
            weights = call.weight, call.a, call.b
            if hooks is None or recomputation.is_of_checkpoint(hooks):
                kept, versions, *weights = node.hold(*weights, hooks is None)
                held.append((kept, versions))
            saved += *weights, call.gain, call.divisor
        ctx.kept = activation, [one.scale for one in calls], trained, x.dtype, held
        ctx.save_for_backward(*saved)
        return out

    @staticmethod
    def backward(ctx, d_out):
        if d_out is None:
            return (None,) * 12
        activation, scales, trained, x_dtype, held = ctx.kept
        x, e, u, inner, *others = ctx.saved_tensors
        is_second = torch.is_grad_enabled()  # create_graph=True
        of_x, _, _, *wanted = ctx.needs_input_grad
        calls = []
        for i, scale in enumerate(scales):
            weight, a, b, gain, divisor = others[3 + 5 * i:8 + 5 * i]
            if held:
                weight, a, b = node.held((True, wanted[2 * i]), *held[i], (weight, a, b), is_second)
            calls.append(node.Call(weight, a, b, divisor, gain, scale, magnitude=trained[6 + i], low=others[i]))
        if is_second:
            return _differentiable(ctx.needs_input_grad, d_out, x, activation, calls, trained)
        gate, up, down = calls
        act, act_backward = ACTIVATIONS[activation]
        activated = act(e)
        a = activated * u
        down.inner = inner
        del inner
        d_a, *of_down = _gradients(True, wanted, trained, 2, d_out, a, down, a.dtype)
        del a
        d_u = d_a * activated
        del activated
        d_e = act_backward(d_a.mul_(u), e)
        found = []
        for i, (call, d, out) in enumerate(((gate, d_e, e), (up, d_u, u))):
            if wanted[6 + i]:
                call.inner, call.divisor = out, saved_output.divisor(call.magnitude, call.divisor)
            found.append(_gradients(of_x, wanted, trained, i, d, x, call, x_dtype))
        (d_x, *of_gate), (more, *of_up) = found
        if of_x:
            d_x = d_x.add_(more)
        (a_gate, b_gate, m_gate), (a_up, b_up, m_up), (a_down, b_down, m_down) = of_gate, of_up, of_down
        return d_x, None, None, a_gate, b_gate, a_up, b_up, a_down, b_down, m_gate, m_up, m_down


def _gradients(of_x, wanted, trained, i, d_out, x, call, x_dtype):
    """Those of x, A, B and the magnitude of projection i."""
    of_layer = trained[2 * i], trained[2 * i + 1], trained[6 + i], None
    return node.differentiate((of_x, wanted[2 * i], wanted[2 * i + 1], wanted[6 + i], False), d_out, x, None, call,
                              of_layer, x_dtype)[:4]


def _differentiable(needed, d_out, x, activation, calls, trained):
    """The gradients with their graph, by autograd from the three layers."""
    layers = [(call.weight, trained[2 * i], trained[2 * i + 1], trained[6 + i], call.scale)
              for i, call in enumerate(calls)]
    of_x, _, _, *wanted = needed
    inputs = [one for one, want in zip((x, *trained), (of_x, *wanted)) if want]
    with torch.enable_grad():
        out = _layer_by_layer(x, *layers, activation)
        found = iter(torch.autograd.grad(out, inputs, d_out, create_graph=True))
    return (next(found) if of_x else None, None, None, *[next(found) if want else None for want in wanted])


def _layer_by_layer(x, gate, up, down, activation):
    e, u = linear.dora_linear(x, *gate), linear.dora_linear(x, *up)
    return linear.dora_linear(ACTIVATIONS[activation][0](e) * u, *down)
