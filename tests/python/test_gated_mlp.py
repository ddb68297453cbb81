"""dorajit.dora_gated_mlp: three DoRA layers and the activation as one node, and as one operator under torch.compile."""

import itertools
import warnings

import dorajit
import pytest
import torch
import torch.nn.functional as F
from dorajit.layers import gated_mlp, gated_mlp_operator
from linear_layers import BF16, F16, F32, F64, assert_near, bound_of
from observers import Graphs, all_equal, compiled
from torch.utils.checkpoint import checkpoint

HIDDEN, INNER, RANK = 24, 40, 4
ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda e: F.gelu(e, approximate="tanh")}
TRAINED = "lora_A", "lora_B", "magnitude"
pytestmark = pytest.mark.usefixtures("fresh_compiler")


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


# --- under torch.compile -------------------------------------------------------------------------

FORWARD, BACKWARD = "dora_gated_mlp_forward", "dora_gated_mlp_backward"
OF_E, OF_U, OF_INNER = 1, 2, 3  # outputs of the forward operator


def run(x, layers, activation):
    return dorajit.dora_gated_mlp(x, *layers, activation)


def gradients(function, x, layers, activation="silu"):
    out = function(x, layers, activation)
    return out, *torch.autograd.grad(out, inputs(x, layers), torch.ones_like(out))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("types, is_autocast", [((F32, F32, F32), False), ((BF16, BF16, BF16), False),
                                                ((BF16, BF16, F32), False), ((BF16, F32, F32), True)])
def test_compiled_mlp_has_the_bits_of_the_eager_node(device, types, is_autocast, activation):
    x, layers = operands(device, types)
    function, graphs = compiled(run)
    with torch.autocast(device, dtype=BF16, enabled=is_autocast):
        out, found = step(x, layers, activation)
        assert type(out.grad_fn).__name__ == "GatedMlpBackward"
        assert all_equal(gradients(function, x, layers, activation), (out, *found))
    assert graphs.operators() == {"forward": [FORWARD], "backward": [BACKWARD]}


def test_inner_of_gate_and_up_is_not_saved(device):
    x, layers = operands(device)
    function, graphs = compiled(run)
    gradients(function, x, layers)
    saved = graphs.saved(FORWARD)
    assert {OF_E, OF_U, OF_INNER} <= saved
    large = [one for graph in graphs.forward for one in graph.output_node().args[0][1:]
             if one.meta["val"].numel() >= x.numel()]
    assert len(large) == 4 + 3  # x, e, u, inner of down, and three weights


def test_frozen_magnitudes_save_no_inner(device):
    x, layers = operands(device)
    for layer in layers:
        layer.magnitude.requires_grad_(False)
    expected = gradients(run, x, layers)
    function, graphs = compiled(run)
    assert all_equal(gradients(function, x, layers), expected)
    assert OF_INNER not in graphs.saved(FORWARD)


def test_inference_and_other_sizes(device):
    x, layers = operands(device)
    function, graphs = compiled(run, dynamic=True)
    with torch.no_grad():
        for rows in (3, 17):
            given = torch.randn(rows, x.shape[-1], device=device)
            assert torch.equal(function(given, layers, "silu"), run(given, layers, "silu"))
    assert graphs.operators() == {"inference": [FORWARD]}


def test_second_order_gradients_of_the_operator(device):
    x, layers = operands(device)
    given = [one for layer in layers for one in (layer.weight, layer.weight, layer.lora_A, layer.lora_B, layer.magnitude)]
    operator = torch.ops.dorajit.dora_gated_mlp(x, *given, [layer.scale for layer in layers], "silu",
                                                [True] * 3)[0]
    made = []
    for out in operator, exact(x, layers, "silu")[0]:
        first, = torch.autograd.grad(out.square().sum(), x, create_graph=True) if out is operator else (None,)
        made.append(first)
    torch.autograd.grad(made[0].square().sum(), inputs(x, layers))
    expected = torch.autograd.grad(run(x, layers, "silu").square().sum(), x, create_graph=True)[0]
    assert_near([made[0].detach()], [expected.detach().double()], 3e-6)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("what", ["x", "A"])
def test_gradients_of_tensors_that_are_not_contiguous(device, fresh_inductor, backend, what):
    x, layers = operands(device)
    seed = torch.randn_like(x)
    if what == "A":
        layers[0] = layers[0]._replace(lora_A=torch.nn.Parameter(layers[0].lora_A.detach().t().contiguous().t()))

    def of_transposed(x):
        given = x * 2
        given = given.transpose(0, 1) if what == "x" else given
        return run(given, layers, "silu")

    found = []
    for function in of_transposed, torch.compile(of_transposed, fullgraph=True, backend=backend):
        out = function(x)
        found.append([out, *torch.autograd.grad(out, inputs(x, layers), seed.view_as(out))])
    assert_near([one.detach() for one in found[1]], [one.detach().double() for one in found[0]], 3e-6)


def test_wrong_scale_is_named(device):
    x, layers = operands(device)
    function = torch.compile(run, backend="aot_eager")
    for scale, name in ((True, "bool"), (torch.tensor(2.0), "Tensor")):
        with pytest.raises(TypeError, match=f"dora_gated_mlp: argument `scale` is a {name}"):
            function(x, [layers[0]._replace(scale=scale), *layers[1:]], "silu")


@pytest.mark.parametrize("is_trained", [True, False])
def test_only_trained_magnitudes_of_zero_warn(device, is_trained):
    gated_mlp_operator._checked.clear()  # of memory that earlier tests have used
    x, layers = operands(device)
    with torch.no_grad():
        layers[0].magnitude[2] = 0
    layers[2 if is_trained else 0].magnitude.requires_grad_(False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gradients(compiled(run)[0], x, layers)
    assert any("a magnitude of gate_proj" in str(one.message) for one in caught) is is_trained


def test_magnitude_of_zero_warns_once(device):
    gated_mlp_operator._checked.clear()  # of memory that earlier tests have used
    x, layers = operands(device)
    with torch.no_grad():
        layers[0].magnitude[2] = 0
    function, _ = compiled(run)
    with pytest.warns(RuntimeWarning, match="a magnitude of gate_proj or up_proj is 0.*DORAJIT_MLP=0"):
        found = gradients(function, x, layers)
    assert all(bool(one.isfinite().all()) for one in found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradients(function, x, layers)


def test_quantities_that_the_operator_lacks_run_layer_by_layer(device):
    """float32 adapters without autocast."""
    x, layers = operands(device, (BF16, F32, F32))
    function, graphs = compiled(run)
    assert_near([one.detach() for one in gradients(function, x, layers)],
                [one.detach().double() for one in gradients(run, x, layers)], 2e-2)
    assert graphs.operators()["forward"] == ["dora_linear_forward"] * 3


def test_compiled_model_of_peft(device):
    pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")
    from test_peft_gated_mlp import IDS, adapted, llama
    model = adapted(llama, device)
    ids = IDS.to(device)
    trained = [one for one in model.parameters() if one.requires_grad]

    def passes(called):
        loss = called(input_ids=ids, labels=ids, use_cache=False).loss
        return [loss, *torch.autograd.grad(loss, trained)]

    with dorajit.patch_peft(model, strict=True):
        expected = passes(model)
        graphs = Graphs()
        found = passes(torch.compile(model, backend=graphs.backend))
        assert graphs.operators()["forward"].count(FORWARD) == 2
    assert_near([one.detach() for one in found], [one.detach().double() for one in expected], 2e-5)
