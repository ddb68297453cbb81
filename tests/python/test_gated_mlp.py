"""dorajit.dora_gated_mlp: three DoRA layers and the activation as one node."""

import itertools

import dorajit
import pytest
import torch
import torch.nn.functional as F
from dorajit.layers import gated_mlp
from linear_layers import BF16, F16, F32, F64, assert_near, bound_of
from torch.utils.checkpoint import checkpoint

HIDDEN, INNER, RANK = 24, 40, 4
ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda e: F.gelu(e, approximate="tanh")}
TRAINED = "lora_A", "lora_B", "magnitude"


def projection(device, types, out, columns):
    base, factors, magnitudes = types
    weight = torch.randn(out, columns).to(base) / columns**0.5
    a, b = torch.randn(RANK, columns).to(factors) / columns**0.5, torch.randn(out, RANK).to(factors)
    norm = (weight.double() + 0.5 * b.double() @ a.double()).norm(dim=1)
    magnitude = (norm * (1 + torch.randn(out) / 4)).to(magnitudes)
    return dorajit.Projection(torch.nn.Parameter(weight.to(device), requires_grad=False),
                              *(torch.nn.Parameter(one.to(device)) for one in (a, b, magnitude)), 0.5)


def operands(device, types=(F32, F32, F32)):
    x = torch.randn(2, 5, HIDDEN).to(types[0]).to(device).requires_grad_()
    shapes = (INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)
    return x, [projection(device, types, *shape) for shape in shapes]


def inputs(x, layers):
    return [one for one in (x, *(getattr(layer, name) for layer in layers for name in TRAINED)) if one.requires_grad]


def exact(x, layers, activation):
    """(output, gradients) in float64."""
    wide = [[one.detach().double().requires_grad_() for one in layer[1:4]] for layer in layers]
    wide_x = x.detach().double().requires_grad_()

    def layer(i, given):
        a, b, magnitude = wide[i]
        adapted = layers[i].weight.double() + layers[i].scale * b @ a
        return F.linear(given, magnitude[:, None] / adapted.detach().norm(dim=1)[:, None] * adapted)

    out = layer(2, ACTIVATIONS[activation](layer(0, wide_x)) * layer(1, wide_x))
    return out, torch.autograd.grad(out, [wide_x, *itertools.chain(*wide)], torch.ones_like(out))


def step(x, layers, activation="silu"):
    out = dorajit.dora_gated_mlp(x, *layers, activation)
    return out, torch.autograd.grad(out, inputs(x, layers), torch.ones_like(out))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("types", [(F32, F32, F32), (F64, F64, F64), (BF16, BF16, BF16), (BF16, BF16, F32), (F16, F16, F32)])
def test_gradients_are_those_of_float64(device, layer_launches, types, activation):
    x, layers = operands(device, types)
    expected, gradients = exact(x, layers, activation)
    layer_launches()
    out, found = step(x, layers, activation)
    assert layer_launches() == {"norm": 3, "compose_residual": 3, "residual_backward": 1, f"gated_{activation}": 1,
                                f"gated_{activation}_backward": 1}
    assert type(out.grad_fn).__name__ == "GatedMlpBackward"
    assert_near([out.detach(), *found], [expected, *gradients], 4 * bound_of(types))


@pytest.mark.parametrize("is_autocast", [False, True])
def test_float32_adapters_over_a_bf16_base(device, is_autocast):
    """Without autocast the low-rank products are float32, and the layers are called one by one."""
    x, layers = operands(device, (BF16, F32, F32))
    expected, gradients = exact(x, layers, "silu")
    with torch.autocast(device, dtype=BF16, enabled=is_autocast):
        out, found = step(x, layers)
    assert (type(out.grad_fn).__name__ == "GatedMlpBackward") is is_autocast
    assert [one.dtype for one in found] == [BF16] + [F32] * 9
    assert_near([out.detach(), *found], [expected, *gradients], 5e-2)


def test_backward_pass_inside_autocast_has_the_same_bits(device):
    x, layers = operands(device)
    expected = step(x, layers)[1]
    out = dorajit.dora_gated_mlp(x, *layers)
    with torch.autocast(device, dtype=BF16):
        found = torch.autograd.grad(out, inputs(x, layers), torch.ones_like(out))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("trained", [{"x"}, {"lora_A"}, {"lora_B"}, {"magnitude"}, {"x", "magnitude"}, {"lora_A", "lora_B"}])
def test_each_part_may_be_frozen(device, trained):
    x, layers = operands(device)
    _, everything = exact(x, layers, "silu")
    names = ["x", *TRAINED * 3]
    x.requires_grad_("x" in trained)
    for layer in layers:
        for name in TRAINED:
            getattr(layer, name).requires_grad_(name in trained)
    _, found = step(x, layers)
    assert_near(found, [one for one, name in zip(everything, names) if name in trained], 1e-5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_gradients_have_the_same_bits(device, reentrant):
    x, layers = operands(device)
    expected = step(x, layers)[1]
    out = checkpoint(lambda x: dorajit.dora_gated_mlp(x, *layers), x, use_reentrant=reentrant)
    out.backward(torch.ones_like(out))
    for one, other in zip(inputs(x, layers), expected):
        assert torch.equal(one.grad, other)


def test_second_order_gradients_are_those_of_the_layers(device):
    x, layers = operands(device, (F64, F64, F64))
    gate, up, down = layers
    given = inputs(x, layers)

    def second(out):
        first = torch.autograd.grad(out, given, torch.ones_like(out), create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), given)

    apart = dorajit.dora_linear(F.silu(dorajit.dora_linear(x, *gate)) * dorajit.dora_linear(x, *up), *down)
    assert_near(second(dorajit.dora_gated_mlp(x, *layers)), second(apart), 1e-10)


@pytest.mark.parametrize("name", ["weight", "lora_A", "lora_B"])
@pytest.mark.parametrize("place", range(3))
def test_written_weights_raise(device, place, name):
    x, layers = operands(device)
    out = dorajit.dora_gated_mlp(x, *layers)
    with torch.no_grad():
        getattr(layers[place], name).add_(1)
    with pytest.raises(RuntimeError, match=f"`{name}`, which its gradients need, was modified"):
        out.sum().backward()


def test_saves_x_the_two_projections_and_inner_of_down(device):
    x, layers = operands(device)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: saved.append(one.shape) or one, lambda one: one):
        dorajit.dora_gated_mlp(x, *layers)
    rows = [shape[-1] for shape in saved if len(shape) == 3 and shape[-1] != RANK]
    assert sorted(rows) == sorted([HIDDEN, HIDDEN, INNER, INNER])


def test_a_graph_that_is_kept_gives_the_same_bits_again(device):
    x, layers = operands(device)
    out = dorajit.dora_gated_mlp(x, *layers)
    first, second = (torch.autograd.grad(out, inputs(x, layers), torch.ones_like(out), retain_graph=keeps)
                     for keeps in (True, False))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_tensors_that_hooks_keep_are_not_written(device):
    x, layers = operands(device)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append((one, one.clone())) or one, lambda one: one):
        out = dorajit.dora_gated_mlp(x, *layers)
    out.sum().backward()
    assert all(torch.equal(*pair) for pair in kept)


def test_gradients_without_the_kernel_of_the_activation(device, monkeypatch):
    """For calls that something observes."""
    x, layers = operands(device)
    expected = step(x, layers)[1]
    monkeypatch.setattr(gated_mlp, "_gradients_at_once", lambda *_: None)
    assert_near(step(x, layers)[1], expected, 1e-5)


def test_magnitude_of_zero_has_the_gradient_zero(device):
    x, layers = operands(device)
    with torch.no_grad():
        layers[0].magnitude[3] = 0.0
    _, found = step(x, layers)
    _, everything = exact(x, layers, "silu")
    everything[3][3] = 0.0  # of gate's magnitude
    assert_near(found, everything, 1e-5)


def test_without_a_graph_there_is_no_node(device):
    x, layers = operands(device)
    with torch.no_grad():
        found = dorajit.dora_gated_mlp(x, *layers)
    assert torch.equal(found, dorajit.dora_gated_mlp(x, *layers).detach())


def test_calls_that_the_node_does_not_serve_are_those_of_the_layers(device):
    x, layers = operands(device)
    expected = step(x, layers)
    with dorajit.disabled():
        out, found = step(x, layers)
    assert_near([out.detach(), *found], [expected[0].detach(), *expected[1]], 1e-5)


def test_unknown_activation_raises():
    x, layers = operands("cpu")
    with pytest.raises(ValueError, match="`activation` is 'relu'; give one of 'silu', 'gelu', 'gelu_tanh'"):
        dorajit.dora_gated_mlp(x, *layers, "relu")


def test_scale_may_be_any_number(device):
    x, layers = operands(device)
    expected = dorajit.dora_gated_mlp(x, *(one._replace(scale=2.0) for one in layers))
    assert torch.equal(dorajit.dora_gated_mlp(x, *(one._replace(scale=2) for one in layers)), expected)
    with pytest.raises(TypeError, match="dora_gated_mlp: argument `scale` is a bool"):
        dorajit.dora_gated_mlp(x, layers[0]._replace(scale=True), *layers[1:])
