"""A gated MLP with DoRA layers, down(act(gate(x)) * up(x)), as one autograd node.

Nobody else can write the outputs e and u of gate and up, so their `inner` is not saved: without a bias it is e / g and
u / g, and

    d_magnitude = (sum of d_e * e) / magnitude

(0 for a magnitude of 0). The activation's output a = act(e) * u is computed again, in the pass over the activations that
also computes these sums and the gradients of the products, all over the memory of their inputs. Saved of the activations'
size are x, e, u, `inner` of down, and masks; with dropout of PEFT's meaning, where e and u do not determine them, also
`inner` of gate and up.
"""

import weakref
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from dorajit import _native, checks
from dorajit.control import state
from dorajit.layers import linear, node, recomputation
from dorajit.layers.modules import Quantized
from dorajit.norms import precision
from dorajit.operations import eligibility, recording, run
from dorajit.operations.eligibility import AUTOGRAD
from dorajit.operations.expression import ACTIVATIONS
from dorajit.operations.table import operations

_TYPES = "the low-rank products have another element type than the base products"
_zeros = weakref.WeakKeyDictionary()  # layer of gate -> whether a magnitude of gate or up was 0 when it first ran
_gradients_at_once = _native.gated_mlp_gradients
# With a PyTorch that does not have this function, any graph may be used again.
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


class Projection(NamedTuple):
    """The parameters of a DoRA layer of the MLP: weight [out_features, in_features], lora_A [rank, in_features], lora_B
    [out_features, rank], magnitude [out_features], and a scale."""

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
    gate, up, down = layers = [Projection(*one[:4], checks.float_scale("dora_gated_mlp", one[4])) for one in (gate, up, down)]
    out = at_once([(None, *layer, None) for layer in layers], x, activation)
    if type(out) is not str:
        return out
    e, u = linear.dora_linear(x, *gate), linear.dora_linear(x, *up)
    return linear.dora_linear(ACTIVATIONS[activation][0](e) * u, *down)


def why_apart(layers, x=None):
    """Why the layers have to be called one by one, as far as it depends on them alone and, if x is given, on its type;
    None if they do not. `layers`: for each the arguments of linear.prepare without x."""
    if any(bias is not None for _, _, _, _, _, _, bias, *_ in layers):
        return "a layer has a bias"
    weights = [one[1] for one in layers]
    if len({(one.keeps_type, one.dtype) if type(one) is Quantized else None for one in weights}) > 1:
        return "the layers are quantized in different ways, or not all"
    for layer, *parts in layers if x is not None else ():
        made = linear.prepare(layer, x, *parts, is_question=True)
        if type(made) is str:
            return made
        if made[0] is not made[1]:
            return _TYPES
    return None


def at_once(layers, x, activation):
    """The output of the node, of launches without a node where no graph is built, or of one operator under torch.compile
    (dorajit.layers.gated_mlp_operator); a text that tells why if the layers have to be called one by one. `layers` as for
    why_apart."""
    why = why_apart(layers)
    if why is not None:
        return why
    prepared = []
    is_traced = eligibility.is_compiling()
    for layer, *parts in layers:
        made = linear.prepare(layer, x, *parts)
        if type(made) is str:
            return made
        prepared.append(made)
        x = made.x  # cast once
        if (made.dtype if is_traced else made.call.a.dtype) is not x.dtype and (is_traced or made.seen == AUTOGRAD):
            return _TYPES
    if is_traced:
        return torch.ops.dorajit.dora_gated_mlp(
            x, *[part for one in prepared for part in one.parameters()], [one.scale for one in prepared], activation,
            [one.keeps_inner for one in prepared])[0]
    calls = [one.call for one in prepared]
    first = prepared[0]
    if not all(map(_drops_base, calls[:2])) and _loses_a_gradient(layers, first.x):
        return "a magnitude of gate or up is 0, whose gradient the node would lose"
    trained = [one for layer in layers for one in layer[2:4]]
    if AUTOGRAD not in [one.seen for one in prepared]:
        out = forward(first.x, calls, activation, (False,) * 3, True)[0]
    else:
        out = GatedMlp.apply(first.x, calls, activation, *trained, *(one.magnitude for one in calls))
    return out if first.result is first.product else out.to(first.result)


def _loses_a_gradient(layers, x):
    """Asked once for a layer, because it waits for the device."""
    layer = layers[0][0]
    if layer is None or x.is_meta or recording.is_running() or (x.is_cuda and torch.cuda.is_current_stream_capturing()):
        return False
    found = _zeros.get(layer)
    if found is None:
        found = _zeros[layer] = any(bool((one[4] == 0).any()) for one in layers[:2])
    return found


def forward(x, calls, activation, keeps, writes_over):
    """(output, S of each layer, `inner` or None of each, masks, e, u). keeps: for each layer whether `inner` is needed.
    writes_over: the memory of e is that of the activation's output."""
    gate, up, down = calls
    e, *of_gate = _of_one(x, gate, keeps[0])
    u, *of_up = _of_one(x, up, keeps[1])
    a = _activated(operations[f"gated_{activation}"], e, u, writes_over)
    out, *of_down = _of_one(a, down, keeps[2])
    return out, *zip(of_gate, of_up, of_down), e, u


def _of_one(x, call, keeps):
    made = node.forward(x, call, None, keeps)
    if call.base is not None and call.weight is not None:  # one dequantized weight at a time
        call.weight, call.of_norm = call.base, None
    return made


def _has_inner(place, call):
    """Whether the gradient of this layer's magnitude needs `inner`, because its output does not determine it."""
    return place == 2 or _drops_base(call)


def _drops_base(call):
    return call.dropout is not None and call.dropout.drops_base


def _activated(operation, e, u, writes_over):
    if state.enabled:
        made = operation.at_once(e, u, e if writes_over else True)
        if type(made) is not int:
            return made
    return run.outputs(operation, (e, u), ())[0]


class GatedMlp(torch.autograd.Function):
    """The node. Its trained inputs are A and B of gate, up and down, and their magnitudes."""

    @staticmethod
    def forward(ctx, x, calls, activation, *trained):
        needed = [of_one and _has_inner(i, call) for i, (call, of_one) in enumerate(zip(calls, ctx.needs_input_grad[9:]))]
        hooks = recomputation.top_hooks(False)
        is_first = hooks is not None and recomputation.is_first_run(hooks)
        is_watched = hooks is not None and not recomputation.is_of_checkpoint(hooks)
        factors = [trained[2 * i:2 * i + 2] for i in range(3)]
        shared = [None if hooks is None else recomputation.share_norms(hooks, is_first, call, *of_call)
                  for call, of_call in zip(calls, factors)]
        out, lows, inners, masks, e, u = forward(x, calls, activation, [one and not is_first for one in needed], is_first)
        for norms, call in zip(shared, calls):
            recomputation.keep_norms(norms, call)
        ctx.set_materialize_grads(False)
        if is_first:  # saves nothing, but tensors of the same shapes and types as the second run
            inners = [like.detach() if one else None for one, like in zip(needed, (e, u, out))]
        saved, held, floats = [x, e, u, *inners, *lows, *masks], [], set()
        for i, call in enumerate(calls):
            weights = None if call.base is not None else call.weight, call.a, call.b
            if not is_watched:
                kept, versions, *weights = node.hold(*weights, hooks is None)
                held.append((kept, versions))
            saved += *weights, call.gain, call.divisor if _has_inner(i, call) else call.magnitude
            floats.add(node.has_float_products(x, *factors[i], call))
        one_type = trained[6].dtype is trained[7].dtype
        ctx.kept = (activation, [(one.scale, one.base, one.dropout) for one in calls], trained, x.dtype, held,
                    floats.pop() if one_type and len(floats) == 1 else None, is_watched)
        ctx.save_for_backward(*saved)
        return out

    @staticmethod
    def backward(ctx, d_out):
        if d_out is None:
            return (None,) * 12
        kind = d_out.device.type
        if precision.is_autocast_enabled(kind):  # use the element types of the forward pass
            with precision.without_autocast(kind):
                return GatedMlp.backward(ctx, d_out)
        activation, layers, trained, x_dtype, held, is_float, is_watched = ctx.kept
        x, e, u, *others = ctx.saved_tensors
        inners, lows, masks, others = others[:3], others[3:6], others[6:9], others[9:]
        is_second = torch.is_grad_enabled()  # create_graph=True
        of_x, _, _, *wanted = ctx.needs_input_grad
        calls = []
        for i, (scale, base, dropout) in enumerate(layers):
            weight, a, b, gain, divisor = others[5 * i:5 * i + 5]
            if held:
                weight, a, b = node.held((i == 2 or of_x, wanted[2 * i]), *held[i], (weight, a, b), is_second)
            calls.append(node.Call(weight, a, b, divisor, gain, scale, base, dropout, None, divisor, lows[i], inners[i],
                                   masks[i]))
        del inners  # so that their memory is free after their last use
        wanted = of_x, *wanted
        if is_second:
            d_x, *found = differentiable(wanted, d_out, x, activation, calls, trained)
        else:
            writes_over = not (is_watched or _keeps_graph())
            d_x, *found = gradients(wanted, d_out, x, e, u, activation, calls, trained, is_float, writes_over, x_dtype)
        return d_x, None, None, *found


def gradients(wanted, d_out, x, e, u, activation, calls, trained, is_float, writes_over, x_dtype):
    """The gradients of x, A and B of gate, up and down, and their magnitudes; None where they are not wanted. trained: these
    tensors without x. is_float: node.has_float_products for all three layers; None if they differ. writes_over: the memory
    of e and u is free."""
    if is_float is not None and not any(map(_drops_base, calls)) and node.may_launch():
        found = _gradients_at_once(d_out, x, e, u, *calls, trained, wanted, f"gated_{activation}_backward", is_float,
                                   writes_over)
        if found is not None:
            return found
    of_x, *wanted = wanted  # by the passes of three linear layers and of the activation
    gate, up, down = calls
    a = _activated(operations[f"gated_{activation}"], e, u, False)
    d_a, *of_down = _of_layer(True, wanted, trained, 2, d_out, a, down, e.dtype)
    del a
    d_e, d_u = _of_activation(activation, d_a, e, u, gate.gain)
    del d_a
    found = []
    for i, (call, d, out) in enumerate(((gate, d_e, e), (up, d_u, u))):
        if wanted[6 + i] and not _has_inner(i, call):
            call.inner, call.divisor = out, torch.where(call.magnitude == 0, 1, call.magnitude.detach())
        found.append(_of_layer(of_x, wanted, trained, i, d, x, call, x_dtype))
    (d_x, *of_gate), (more, *of_up) = found
    if of_x:
        d_x = d_x.add_(more)
    (a_gate, b_gate, m_gate), (a_up, b_up, m_up), (a_down, b_down, m_down) = of_gate, of_up, of_down
    return d_x, a_gate, b_gate, a_up, b_up, a_down, b_down, m_gate, m_up, m_down


def _of_activation(activation, d_a, e, u, gain):
    """The gradients of e and u; `gain` is any tensor of a gain's shape and type. Writes over d_a."""
    if node.may_launch():
        ones = torch.ones_like(gain)
        made = operations[f"gated_{activation}_backward"].at_once(
            d_a, e, u, ones, ones, None, None, None, True, True, None, None)
        if type(made) is not int:
            return made[1:3]
    act, act_backward = ACTIVATIONS[activation]
    d_u = d_a * act(e)
    return act_backward(d_a.mul_(u), e), d_u


def _of_layer(of_x, wanted, trained, i, d_out, x, call, x_dtype):
    """Those of x, A, B and the magnitude of layer i."""
    of_layer = trained[2 * i], trained[2 * i + 1], trained[6 + i], None
    found = node.differentiate((of_x, wanted[2 * i], wanted[2 * i + 1], wanted[6 + i], False), d_out, x, call.mask, call,
                               of_layer, x_dtype)[:4]
    if call.base is not None:
        call.weight = None
    return found


def differentiable(wanted, d_out, x, activation, calls, trained):
    """`gradients` with their graph, by autograd from the formulas of the three layers."""
    of_x, *wanted = wanted
    inputs = [one for one, want in zip((x, *trained), (of_x, *wanted)) if want]

    def layer(i, given):
        call = calls[i]
        if call.base is not None:
            call.dequantize(given.dtype)
        divisor = call.divisor if _has_inner(i, call) else torch.where(call.gain == 0, 1, call.magnitude.detach() / call.gain)
        call.divisor = divisor if wanted[6 + i] else None
        return node.formula(given, trained[2 * i], trained[2 * i + 1], trained[6 + i], None, call, call.mask)

    with torch.enable_grad():
        out = layer(2, ACTIVATIONS[activation][0](layer(0, x)) * layer(1, x))
        found = iter(torch.autograd.grad(out, inputs, d_out, create_graph=True))
    return [next(found) if want else None for want in (of_x, *wanted)]
