"""Layers of dorajit.nn and of PEFT under torch.compile: one operator forward and one backward for each."""

import contextlib

import dorajit
import pytest
import torch
from observers import Graphs, all_equal, compiled
from reference import needs_gpu
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("fresh_compiler")
BF16, F32 = torch.bfloat16, torch.float32
FORWARD, BACKWARD = "dora_linear_forward", "dora_linear_backward"
# PEFT keeps adapters in float32 over a 16-bit base.
WAYS = [(F32, None), (BF16, None), (F32, BF16)]


def base_model(device, dtype):
    return nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 16, bias=False)).to(device, dtype)


def nn_model(device, dtype, patches):
    model = base_model(device, dtype)
    for number in 0, 2:
        model[number] = dorajit.nn.DoRALinear.from_linear(model[number], rank=4, alpha=8)
    return model


def peft_model(device, dtype, patches):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(base_model(device, dtype), peft.LoraConfig(
        use_dora=True, r=4, lora_alpha=8, target_modules=["0", "2"]))
    patches.enter_context(dorajit.patch_peft(model, strict=True))
    return model


class Call(nn.Module):
    """A call of dorajit.dora_linear."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        of, base = self.layer, self.layer.base_layer
        return dorajit.dora_linear(x, base.weight, of.lora_A.weight, of.lora_B.weight, of.lora_magnitude_vector, of.scaling,
                                   base.bias)


def calling_model(device, dtype, patches):
    model = nn_model(device, dtype, patches)
    return nn.Sequential(Call(model[0]), model[1], Call(model[2]))


also_of_functions = pytest.mark.parametrize("make", [nn_model, peft_model, calling_model], indirect=True,
                                            ids=["nn", "peft", "function"])


@pytest.fixture(params=[nn_model, peft_model], ids=["nn", "peft"])
def make(request):
    """(device, dtype) -> a model whose adapters are not no-ops."""
    patches = contextlib.ExitStack()
    def make(device, dtype=F32):
        model = request.param(device, dtype, patches)
        with torch.no_grad():
            for name, one in model.named_parameters():
                if one.requires_grad:
                    one.add_(torch.randn_like(one) / 8) if one.dim() == 2 else one.mul_(1 + torch.rand_like(one) / 4)
        return model
    with patches:
        yield make


def step(function, model, x, autocast=None):
    """The output, the gradient of x and those of trained parameters."""
    trained = [one for one in model.parameters() if one.requires_grad]
    x = x.detach().requires_grad_()
    with torch.autocast(x.device.type, autocast) if autocast else contextlib.nullcontext():
        out = function(x)
    return out.detach(), *torch.autograd.grad(out.float().square().mean(), [x, *trained])


def assert_close(found, expected, autocast=None):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is other.dtype and one.shape == other.shape
        bound = 2e-2 if BF16 in (one.dtype, autocast) else 1e-5
        error = (one.double() - other.double()).abs().max() / other.double().abs().max()
        assert error <= bound, f"{error:.1e} of a tensor of shape {tuple(one.shape)}"


@pytest.mark.parametrize("dtype, autocast", WAYS)
def test_compiled_layer_is_one_operator_forward_and_one_backward(device, make, dtype, autocast):
    model = make(device, dtype)
    x = torch.randn(2, 5, 24, device=device, dtype=dtype)
    expected = step(model, model, x, autocast)
    function, graphs = compiled(model)
    assert_close(step(function, model, x, autocast), expected, autocast)
    assert graphs.operators() == {"forward": [FORWARD] * 2, "backward": [BACKWARD] * 2}
    assert not [node for graph in (*graphs.forward, *graphs.backward) for node in graph.nodes
                if "mm" in str(node.target)]  # no matrix product is outside of the operators


@pytest.mark.parametrize("dtype, autocast", WAYS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_layers_compiled_by_inductor_match_eager(device, make, launches, dtype, autocast, dynamic):
    model = make(device, dtype)
    # With None the second size also makes the graphs dynamic; one type is enough, as compiling C++ again takes long.
    function = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=(
        "aot_eager" if device == "cpu" and dynamic and dtype is BF16 else "inductor"))
    for rows in (6, 7):
        x = torch.randn(3, rows, 24, device=device, dtype=dtype)
        launches()
        expected = step(model, model, x, autocast)
        of_eager = launches()
        assert_close(step(function, model, x, autocast), expected, autocast)
        assert launches() == of_eager
    with torch.no_grad():
        assert_close([function(x)], [model(x)])


@also_of_functions
def test_compiled_inference_of_layers_matches_eager(device, make, layer_launches):
    model = make(device)
    function, graphs = compiled(model)
    x = torch.randn(5, 24, device=device)
    with torch.no_grad():
        expected = model(x)
        layer_launches()
        assert torch.equal(function(x), expected)
    assert layer_launches() == {"norm": 2, "compose_residual": 2}
    assert graphs.operators() == {"inference": [FORWARD] * 2}


@also_of_functions
def test_compiled_layer_uses_weights_written_after_compilation(device, make):
    model = make(device)
    function, _ = compiled(model)
    x = torch.randn(5, 24, device=device)
    step(function, model, x)
    for one in model.parameters():
        one.data.mul_(1.5)
        assert all_equal(step(function, model, x), step(model, model, x))


@also_of_functions
def test_compiled_checkpointed_layers_match_eager(device, make):
    model = make(device)
    function, graphs = compiled(lambda x: checkpoint(model, x, use_reentrant=False))
    x = torch.randn(5, 24, device=device)
    assert all_equal(step(function, model, x), step(model, model, x))
    assert graphs.operators() == {"forward": [FORWARD] * 2, "backward": [FORWARD, FORWARD, BACKWARD, BACKWARD]}
    assert graphs.saved(FORWARD) == set()


@pytest.mark.parametrize("hooked", ["base_layer", "lora_A", "lora_B"])
def test_compiled_layer_with_hooks_calls_them(device, make, hooked):
    model = make(device)
    seen = []
    def double(module, args, out):
        seen.append(module)
        return 2 * out
    module = next(one for name, one in model.named_modules() if name.endswith("0." + hooked))
    (module["default"] if isinstance(module, nn.ModuleDict) else module).register_forward_hook(double)
    x = torch.randn(5, 24, device=device)
    expected = step(model, model, x)
    graphs = Graphs()
    function = torch.compile(model, backend=graphs.backend)
    seen.clear()
    assert_close(step(function, model, x), expected)
    assert seen
    assert graphs.operators()["forward"].count(FORWARD) == 1  # only the layer without hooks


@also_of_functions
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_compiled_layer_with_trained_weight_or_bias_is_composed(device, make, name):
    model = make(device)
    first = next(one for one in model.modules() if isinstance(one, nn.Linear))
    getattr(first, name).requires_grad_()
    function, graphs = compiled(model)
    x = torch.randn(5, 24, device=device)
    assert_close(step(function, model, x), step(model, model, x))
    assert graphs.operators()["forward"].count(FORWARD) == 1


def test_frozen_weights_cache_nothing_in_compiled_code(device, make):
    model = make(device)
    function = torch.compile(model, fullgraph=True)
    x = torch.randn(5, 24, device=device)
    with torch.no_grad(), dorajit.frozen_weights(model):
        function(x)
        for one in model.parameters():
            one.data.mul_(1.1)
        found = function(x)
    with torch.no_grad():
        assert_close([found], [model(x)])


# --- CUDA graphs ---------------------------------------------------------------------------------

@needs_gpu
@pytest.mark.parametrize("dtype, autocast", WAYS)
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_training_with_cuda_graphs_is_replayed(make, launches, mode, dtype, autocast):
    model = make("cuda", dtype)
    function = torch.compile(model, fullgraph=True, mode=mode)
    for _ in range(6):
        x = torch.randn(64, 24, device="cuda", dtype=dtype)
        expected = step(model, model, x, autocast)
        launches()
        torch.compiler.cudagraph_mark_step_begin()
        found = step(function, model, x, autocast)
        counts = launches()
        assert_close(found, expected, autocast)
        with torch.no_grad():  # write weights as an optimizer does
            for one in model.parameters():
                one.mul_(1.01)
    assert counts == {}  # both passes run only by replaying their graphs


@needs_gpu
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_inference_with_cuda_graphs_is_replayed(make, launches, mode, dtype):
    model = make("cuda", dtype)
    function = torch.compile(model, fullgraph=True, mode=mode)
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(64, 24, device="cuda", dtype=dtype)
            expected = model(x)
            launches()
            torch.compiler.cudagraph_mark_step_begin()
            found = function(x)
            counts = launches()
            assert_close([found], [expected])
            for one in model.parameters():
                one.mul_(1.01)
    assert counts == {}


@needs_gpu
def test_alternating_training_and_inference_with_cuda_graphs_matches_eager(make):
    """Neither may keep a tensor in memory that the other's graph overwrites."""
    model = make("cuda")
    function = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    for _ in range(5):
        x = torch.randn(64, 24, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        assert_close(step(function, model, x), step(model, model, x))
        torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            assert_close([function(x)], [model(x)])
