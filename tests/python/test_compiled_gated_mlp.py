"""Gated MLPs under torch.compile: one operator forward and one backward."""

import warnings

import dorajit
import pytest
import torch
from dorajit.layers import gated_mlp_operator
from observers import Graphs, all_equal, compiled
from linear_layers import BF16, F32, assert_near
from test_gated_mlp import ACTIVATIONS, exact, inputs, operands, step

pytestmark = pytest.mark.usefixtures("fresh_compiler")
FORWARD, BACKWARD = "dora_gated_mlp_forward", "dora_gated_mlp_backward"
E, U, INNER = 1, 2, 3  # outputs of the forward operator


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
    assert {E, U, INNER} <= saved
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
    assert INNER not in graphs.saved(FORWARD)


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
def test_gradients_of_tensors_that_are_not_contiguous(device, backend, what):
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
