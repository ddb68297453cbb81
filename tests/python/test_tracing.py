"""Tracers, selective checkpointing and transforms observe single operations: norms and compositions of layers are
operators there."""

import dorajit
import pytest
import torch
from dorajit import testing
from reference import assert_norm, exact_norm
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

SCALE = 0.7


def factors(device="cpu", rows=24, columns=40, rank=4):
    return [torch.randn(shape, device=device) for shape in ((rows, columns), (rank, columns), (rows, rank))]


def trained_layer(device, dropout=0.0):
    layer = dorajit.nn.DoRALinear.from_linear(torch.nn.Linear(40, 24, device=device), rank=4, alpha=8, dropout=dropout)
    with torch.no_grad():
        layer.lora_B.weight.normal_()
        layer.lora_magnitude_vector.mul_(1 + 0.1 * torch.rand_like(layer.lora_magnitude_vector))
    return layer


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_traced_norm_depends_on_its_arguments(device, mode):
    graph = make_fx(lambda *of: dorajit.weight_norm(*of, SCALE), tracing_mode=mode)(*factors(device))
    given = factors(device)
    assert_norm(graph(*given), exact_norm(*given, SCALE))
    assert "dorajit.row_norms.default" in [str(node.target) for node in graph.graph.nodes]


def test_norm_under_functionalization_matches_dense_norm(device):
    given = factors(device)
    found = torch.func.functionalize(lambda *of: dorajit.weight_norm(*of, SCALE))(*given)
    assert_norm(found, exact_norm(*given, SCALE))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("stacked", [(0,), (1, 2), (0, 1, 2)])
def test_vmap_over_adapters_gives_each_norm(device, stacked):
    many = [factors(device) for _ in range(3)]
    dims = tuple(0 if i in stacked else None for i in range(3))
    given = [torch.stack([one[i] for one in many]) if i in stacked else many[0][i] for i in range(3)]
    found = torch.vmap(lambda *of: dorajit.weight_norm(*of, SCALE), dims)(*given)
    for number, norms in enumerate(found):
        assert_norm(norms, exact_norm(*(one[number] if dim == 0 else one for one, dim in zip(given, dims)), SCALE))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_functional_ensemble_of_layers_matches_each_layer(device):
    layers = [trained_layer(device) for _ in range(3)]
    for layer in layers[1:]:
        layer.base_layer.load_state_dict(layers[0].base_layer.state_dict())
    parameters, _ = torch.func.stack_module_state(layers)
    x = torch.randn(5, 40, device=device)
    found = torch.vmap(lambda of: torch.func.functional_call(layers[0], of, (x,)))(parameters)
    torch.testing.assert_close(found, torch.stack([layer(x) for layer in layers]))


# PyTorch's dropout writes into tensors that the policy "every" saves.
@pytest.mark.parametrize("saved, dropout", [
    *((saved, dropout) for dropout in (0.0, 0.5) for saved in (
        "aten.zeros.default", "aten.slice.Tensor", "aten.mm.out", "aten.mm.default", "aten.add_.Tensor",
        "dorajit.row_norms.default")), ("every", 0.0)])
def test_selective_checkpointing_with_any_policy_has_right_gradients(device, saved, dropout):
    def policy(context, op, *args, **kwargs):
        return (CheckpointPolicy.MUST_SAVE if saved in ("every", str(op)) else CheckpointPolicy.PREFER_RECOMPUTE)
    layer = trained_layer(device, dropout)
    x = torch.randn(5, 40, device=device, requires_grad=True)
    trained = [x, *(one for one in layer.parameters() if one.requires_grad)]
    def gradients(**how):
        torch.manual_seed(3)
        out = checkpoint(lambda of: layer(of * 1), x, use_reentrant=False, **how)
        return torch.autograd.grad(out.square().sum(), trained)
    expected = gradients()
    found = gradients(context_fn=lambda: create_selective_checkpoint_contexts(policy))
    torch.testing.assert_close(found, expected)


def test_sliced_dropout_under_a_mode_is_not_sliced(monkeypatch):
    layer, x = trained_layer("cpu", 0.5), torch.randn(5, 40)
    monkeypatch.setattr("dorajit.layers.dropout.columns_at_once", lambda *_: 8)
    torch.manual_seed(3)
    graph = make_fx(lambda of: layer(of))(x)
    before = testing.launch_counts()
    torch.manual_seed(3)
    found = graph(x)
    assert testing.launch_counts() != before
    torch.manual_seed(3)
    torch.testing.assert_close(found, layer(x))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_layer_can_be_traced_after_it_has_run(device):
    layer, x = trained_layer(device), torch.randn(5, 40, device=device)
    layer(x).sum().backward()
    traced = torch.jit.trace(layer, (x,))  # traces twice and compares
    others = torch.randn(7, 40, device=device)
    torch.testing.assert_close(traced(others), layer(others))


@pytest.mark.parametrize("function", ["fused_dora_compose_autograd", "fused_dora_compose_residual"])
def test_compiled_function_in_forward_mode_keeps_tangents(function):
    call = getattr(dorajit, function)
    lora, base, gain = torch.randn(4, 6), torch.randn(4, 6), torch.rand(6)
    def derivative(tangent):
        with torch.autograd.forward_ad.dual_level():
            out = call(torch.autograd.forward_ad.make_dual(lora, tangent), base, gain, SCALE)
            return torch.autograd.forward_ad.unpack_dual(out).tangent
    tangent = torch.randn(4, 6)
    torch._dynamo.reset()
    for run in (derivative, torch.compile(derivative, backend="aot_eager")):
        torch.testing.assert_close(run(tangent), gain * SCALE * tangent)


@pytest.mark.parametrize("function", ["fused_dora_compose_autograd", "fused_dora_compose_residual"])
def test_compiled_function_obeys_the_switch_of_the_backward_pass(function, launches, switch):
    switch("PEFT_DORA_FUSED_BACKWARD", "0")
    given = [torch.randn(4, 6).requires_grad_(), torch.randn(4, 6), torch.rand(6)]
    torch._dynamo.reset()
    call = getattr(dorajit, function)
    out = torch.compile(lambda *of: call(*of, SCALE), fullgraph=True, backend="aot_eager")(*given)
    out.sum().backward()
    assert launches() == {}
    torch.testing.assert_close(out.detach(), call(*(one.detach() for one in given), SCALE))


@pytest.mark.parametrize("function", ["fused_dora_compose", "fused_dora_forward_and_inner",
                                      "fused_dora_compose_residual"])
def test_force_native_inside_transforms_raises(function):
    lora, base, gain = torch.randn(4, 6), torch.randn(4, 6), torch.rand(6)
    options = {"inplace": False} if function == "fused_dora_compose" else {}
    def call(one):
        found = getattr(dorajit, function)(one, base[0], gain, SCALE, **options)
        return found[0] if isinstance(found, tuple) else found
    assert torch.vmap(call)(lora).shape == lora.shape
    with dorajit.force_native(), pytest.raises(dorajit.FallbackError, match="transform of torch.func"):
        torch.vmap(call)(lora)


@pytest.mark.parametrize("function, name", [
    (lambda *of: dorajit.fused_dora_compose(*of, SCALE, inplace=False), "compose"),
    (lambda *of: dorajit.fused_dora_compose(of[0] * 1, *of[1:], SCALE), "compose"),
    (lambda *of: dorajit.fused_dora_compose_residual(*of, SCALE), "compose_residual"),
    (lambda *of: dorajit.fused_dora_forward_and_inner(*of, SCALE)[1], "compose_inner"),
    (lambda lora, base, gain: dorajit.fused_norm_assembly(gain, gain, gain, SCALE)[0], "norm_assembly"),
    (lambda lora, base, gain: dorajit.weight_norm(lora, base[:2], lora[:, :2], SCALE), "row_norms"),
])
def test_pre_dispatch_traces_contain_operators(function, name):
    tensors = torch.randn(4, 6), torch.randn(4, 6), torch.rand(6)
    traced = make_fx(function, pre_dispatch=True)(*tensors)
    assert f"dorajit.{name}.default" in [str(node.target) for node in traced.graph.nodes]
    others = [torch.randn_like(one).abs() for one in tensors]
    torch.testing.assert_close(traced(*others), function(*others))


def test_function_compiled_in_forward_mode_runs_natively_outside(launches):
    torch._dynamo.reset()
    function = torch.compile(lambda *of: dorajit.fused_dora_compose(*of, SCALE, inplace=False), backend="aot_eager")
    tensors = torch.randn(4, 6), torch.randn(4, 6), torch.rand(6)
    with torch.autograd.forward_ad.dual_level():
        expected = function(*tensors)
    assert launches() == {}
    assert torch.equal(function(*tensors), expected)
    assert launches() == {"compose": 1}
