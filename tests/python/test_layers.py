"""The layers of dorajit.nn, and the composition under dropout."""

import copy

import dorajit
import pytest
import torch
import torch.nn.functional as F
from dorajit.layers import dropout as dropped
from linear_layers import layer_and_input
from reference import perturb
from torch import nn
from torch.nn.utils import prune

KINDS = ["linear", "linear without bias", "conv1d", "conv2d", "conv3d", "embedding"]


def functional(layer, x):
    """(the layer's output by its formula with a dense weight, the operands)."""
    base = layer.base_layer
    if isinstance(base, nn.Embedding):
        a, b = layer.lora_embedding_A, layer.lora_embedding_B
        dense = (b @ a).T
        norm = (base.weight + layer.scaling * dense).norm(dim=0).detach()
        factor = layer.lora_magnitude_vector / norm
        return F.embedding(x, factor * (base.weight + layer.scaling * dense))
    a, b = layer.lora_A.weight, layer.lora_B.weight
    dense = (b.flatten(1) @ a.flatten(1)).view_as(base.weight)
    adapted = base.weight + layer.scaling * dense
    norm = adapted.detach().flatten(1).norm(dim=1)
    factor = (layer.lora_magnitude_vector.flatten() / norm).view(-1, *(1,) * (adapted.dim() - 1))
    if isinstance(base, nn.Linear):
        return F.linear(x, factor * adapted, base.bias)
    return base._conv_forward(x, factor * adapted, base.bias)


@pytest.mark.parametrize("kind, names", [
    ("linear", ["in_features", "out_features"]), ("embedding", ["num_embeddings", "embedding_dim", "padding_idx"]),
    *((f"conv{dims}d", ["in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups",
                        "padding_mode"]) for dims in (1, 2, 3))])
def test_layers_have_the_sizes_of_their_base_layers(device, kind, names):
    layer, _ = layer_and_input(kind, device)
    for name in names:
        assert getattr(layer, name) == getattr(layer.base_layer, name)


def test_encoder_that_reads_weights_raises_instead_of_leaving_the_adapter_out(device):
    """PyTorch's fast path of an encoder layer computes with the `weight` of its submodules."""
    encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, device=device).eval()
    encoder.linear1 = dorajit.nn.DoRALinear.from_linear(encoder.linear1, 3)
    with torch.no_grad(), pytest.raises(AttributeError, match="no attribute 'weight'"):
        encoder(torch.randn(2, 5, 16, device=device))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_new_adapter_does_not_change_outputs(device, kind, dtype):
    layer, x = layer_and_input(kind, device, dtype)
    assert torch.equal(layer(x), layer.base_layer(x))
    assert (layer.gain() == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_layers_output_and_gradients_match_the_dense_formula(device, layer_launches, kind):
    layer, x = layer_and_input(kind, device)
    perturb(layer)
    layer_launches()
    out = layer(x)
    expected = functional(layer, x)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    trained = [one for one in layer.parameters() if one.requires_grad]
    assert len(trained) == 3
    seed = torch.randn_like(out)
    found = torch.autograd.grad(out, trained, seed)
    assert layer_launches() == {"norm": 1, "compose_residual": 1, "residual_backward": 1}
    with torch.no_grad():
        layer(x)
    assert layer_launches()["compose_residual"] == 1
    torch.testing.assert_close(found, torch.autograd.grad(expected, trained, seed), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_merge_and_unmerge_preserve_outputs_and_weight(device, kind, dtype):
    layer, x = layer_and_input(kind, device, dtype)
    perturb(layer)
    before, weight = layer(x), layer.base_layer.weight.clone()
    layer.merge()
    assert layer.merged
    step = 1e-5 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(layer(x), before, rtol=step, atol=step)
    torch.testing.assert_close(layer(x), layer.base_layer(x), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="merged already"):
        layer.merge()
    layer.unmerge()
    assert torch.equal(layer.base_layer.weight, weight) and torch.equal(layer(x), before)
    with pytest.raises(RuntimeError, match="not merged"):
        layer.unmerge()
    layer.merge(keep=False)
    with pytest.raises(RuntimeError, match="was not kept"):
        layer.unmerge()


@pytest.mark.parametrize("kind", ["linear", "conv2d", "embedding"])
def test_state_dict_has_the_names_of_peft_and_loads(device, kind):
    layer, x = layer_and_input(kind, device)
    perturb(layer)
    state = layer.state_dict()
    def renamed(key):
        if key.startswith("base_layer"):
            return key
        stem, _, rest = key.partition(".")
        return f"{stem}.default" + (f".{rest}" if rest else ".weight" if stem == "lora_magnitude_vector" else "")
    for given in (state, {renamed(key): value for key, value in state.items()}):
        other, _ = layer_and_input(kind, device)
        other.load_state_dict(given)
        assert torch.equal(other(x), layer(x))


def test_magnitude_over_bfloat16_base_is_float32(device):
    layer, x = layer_and_input("linear", device, torch.bfloat16)
    assert layer.lora_magnitude_vector.dtype == torch.float32
    perturb(layer)
    wide, _ = layer_and_input("linear", device)
    wide.load_state_dict({key: value.float() for key, value in layer.state_dict().items()})
    torch.testing.assert_close(layer(x).float(), wide(x.float()), rtol=2e-2, atol=2e-2)


def test_columns_per_slice_follow_from_the_budget():
    assert dropped.columns_at_once(4096, 12288, 2, 256 << 20) == 12288
    assert dropped.columns_at_once(16384, 12288, 2, 256 << 20) == 8192
    assert dropped.columns_at_once(16384, 12288, 4, 16 << 20) == 256
    assert dropped.columns_at_once(1 << 24, 100, 4, 16 << 20) == 64
    assert dropped.columns_at_once(0, 100, 4, 16 << 20) == 100


@pytest.mark.parametrize("kind", ["linear", "conv2d"])
@pytest.mark.parametrize("everywhere", [True, False])
def test_output_seen_by_a_hook_is_not_overwritten(device, kind, everywhere):
    layer, x = layer_and_input(kind, device, dropout=0.5)
    perturb(layer)
    seen = []
    def keep(module, _, out):
        if module is layer.lora_B:
            seen.append((out, out.clone()))
    register = (nn.modules.module.register_module_forward_hook if everywhere else layer.lora_B.register_forward_hook)
    handle = register(keep)
    try:
        with torch.no_grad():
            layer(x)
    finally:
        handle.remove()
    (out, copied), = seen
    assert torch.equal(out, copied)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_can_be_created_on_meta(device, kind):
    source, x = layer_and_input(kind, device)
    perturb(source)
    layer, _ = layer_and_input(kind, "meta")
    assert layer.lora_magnitude_vector.is_meta
    layer.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(layer(x), source(x))


@pytest.mark.parametrize("kind", KINDS)
def test_swapped_parameters_are_used(device, kind):
    layer, x = layer_and_input(kind, device)
    perturb(layer)
    expected = layer(x).detach()
    saved = copy.deepcopy(layer.state_dict())
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.double()
        inputs = x.double() if x.is_floating_point() else x
        torch.testing.assert_close(layer(inputs).float().detach(), expected)
        layer.load_state_dict({name: one.double() for name, one in saved.items()})
        torch.testing.assert_close(layer(inputs).float().detach(), expected)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.parametrize("compute", [nn.utils.parametrizations.weight_norm,
                                     nn.utils.parametrizations.spectral_norm,
                                     lambda base: prune.l1_unstructured(base, "weight", 0.5)])
def test_merge_into_computed_weight_raises(device, compute):
    layer = dorajit.nn.DoRALinear(compute(nn.Linear(20, 12, device=device)), 3).eval()
    perturb(layer)
    x = torch.randn(5, 20, device=device)
    expected = layer(x)
    torch.testing.assert_close(expected, functional(layer, x))
    with pytest.raises(ValueError, match="DoRALinear.merge: the weight of `base_layer` is computed"):
        layer.merge()
    assert not layer.merged and torch.equal(layer(x), expected)


@pytest.mark.parametrize("make, error, words", [
    (lambda: dorajit.nn.DoRALinear(nn.Conv1d(2, 2, 1), 2), TypeError, "`base_layer` is a Conv1d"),
    (lambda: dorajit.nn.DoRALinear(nn.Linear(2, 2), 0), ValueError, "`rank` is 0"),
    (lambda: dorajit.nn.DoRALinear(nn.Linear(2, 2), 2, dropout=1.0), ValueError, "`dropout` is 1.0"),
    (lambda: dorajit.nn.DoRAConv2d(nn.Conv2d(4, 4, 1, groups=2), 2), ValueError, "2 groups"),
    (lambda: dorajit.nn.DoRAEmbedding(nn.Embedding(4, 4, max_norm=1.0), 2), ValueError, "max_norm")])
def test_constructors_with_bad_arguments_raise(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_layer_with_bad_input_raises(device):
    layer, x = layer_and_input("linear", device)
    with pytest.raises(ValueError, match="argument `x` has shape"):
        layer(x[..., 1:])
    for wrong, said in ((torch.ones(3, device=device), "has shape"), (torch.ones(12, device="meta"), "is on meta")):
        layer.lora_magnitude_vector = nn.Parameter(wrong)
        with pytest.raises(ValueError, match=f"argument `magnitude` {said}"):
            layer(x)
    layer, x = layer_and_input("linear", device)
    with torch.no_grad():
        layer.base_layer.weight[0, 0] = float("nan")
    assert layer(x)[..., 0].isnan().all()
    with pytest.raises(ValueError, match="not finite"):
        layer.merge()
