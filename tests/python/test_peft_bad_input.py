"""patch_peft: wrong weights and magnitudes raise an error or have the documented result."""

import itertools

import dorajit
import pytest
import torch
from torch import nn

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from dorajit.peft import layers
from peft import LoraConfig, get_peft_model
from peft_models import Base, KINDS, adapted, assert_same, model_and_input, results
from reference import perturb

WEIGHTED = ["linear", "conv1d_gpt2", "conv2d", "embedding"]


def parts(model):
    layer = model.base_model.model.layer
    return layer.base_layer, layer.lora_magnitude_vector["default"]


def row_of(kind, weight, row):
    """The elements of a weight that belong to one output channel."""
    return weight[:, row] if kind in ("conv1d_gpt2", "embedding") else weight[row]


def channel(kind, out, row):
    return out[:, row] if kind.startswith("conv") and kind != "conv1d_gpt2" else out[..., row]


@pytest.mark.parametrize("kind", KINDS)
def test_magnitude_of_wrong_size_or_device_raises(device, kind):
    model = adapted(kind, device)
    x = model.base_model.model.example(device)
    magnitude = parts(model)[1]
    shape = magnitude.weight.shape
    with dorajit.patch_peft():
        magnitude.weight = nn.Parameter(torch.ones(3, device=device))
        with pytest.raises(ValueError, match="argument `magnitude` has shape"):
            model(x)
        magnitude.weight = nn.Parameter(torch.ones(shape, device="meta"))
        with pytest.raises(ValueError, match=f"`magnitude` is on meta but the weight is on {device}"):
            model(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grad", [True, False])
def test_missing_magnitude_raises(device, kind, grad):
    model = adapted(kind, device)
    parts(model)[1].weight = None
    with dorajit.patch_peft(), torch.set_grad_enabled(grad):
        with pytest.raises(TypeError, match="argument `magnitude` is a NoneType; give the layer a tensor with one element"):
            model(model.base_model.model.example(device))


@pytest.mark.parametrize("kind, factor, is_meta", [
    *itertools.product(("linear", "conv2d"), ("lora_A", "lora_B"), (False,)), ("linear", "lora_A", True)])
def test_factor_of_wrong_size_or_device_raises(device, kind, factor, is_meta):
    model = adapted(kind, device)
    x = model.base_model.model.example(device)
    module = getattr(model.base_model.model.layer, factor)["default"]
    rows, *rest = module.weight.shape
    module.weight = nn.Parameter(torch.ones(rows + (not is_meta), *rest, device="meta" if is_meta else device))
    with dorajit.patch_peft(), pytest.raises(
            ValueError, match="`lora_A` is on meta" if is_meta else "argument `lora_B` has shape"):
        model(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_new_adapter_over_zero_row_is_a_no_op_and_trainable(device, kind, dtype):
    """PEFT gives NaN (0 / 0) for such a row. Under the patch a new adapter is a no-op and can be trained."""
    base = Base(kind).to(device, dtype)
    with torch.no_grad():
        row_of(kind, base.layer.weight, 3).zero_()
    config = LoraConfig(use_dora=True, target_modules=["layer"], r=4, fan_in_fan_out=kind == "conv1d_gpt2")
    x = base.example(device, dtype)
    plain = base(x).detach()
    with dorajit.patch_peft(strict=True):
        model = get_peft_model(base, config)
        assert parts(model)[1].weight.flatten()[3] == 1e-12  # 0 could neither be trained nor divided by
        out, gradients, _ = results(model, x)
        assert torch.equal(out, plain)
        assert gradients and all(one.isfinite().all() for one in gradients.values())
        if kind != "embedding":  # whose A is 0 at first, not B
            assert next(one for name, one in gradients.items() if "lora_B" in name)[3].any()
        step = 1e-5 if dtype == torch.float32 else 3e-2
        merged = model.merge_and_unload(safe_merge=True)
        torch.testing.assert_close(merged(x), plain, rtol=step, atol=step)


@pytest.mark.parametrize("kind", WEIGHTED)
def test_magnitude_over_zero_row_gives_finite_gain(device, kind):
    """g = magnitude / eps is large and finite."""
    model = adapted(kind, device)
    base, magnitude = parts(model)
    with torch.no_grad():
        row_of(kind, base.weight, 3).zero_()
    with dorajit.patch_peft(strict=True):
        assert model(model.base_model.model.example(device)).isfinite().all() and magnitude.weight.flatten()[3] > 0


@pytest.mark.parametrize("kind", WEIGHTED)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["weight", "magnitude"])
def test_non_finite_weight_affects_only_its_channel(device, kind, bad, where):
    model, x = model_and_input(kind, device)
    base, magnitude = parts(model)
    with torch.no_grad(), dorajit.patch_peft(strict=True):
        good = model(x)
        if where == "weight":
            row_of(kind, base.weight, 3).fill_(bad)
        else:
            magnitude.weight.view(-1)[3] = bad
        out = model(x)
        assert not channel(kind, out, 3).isfinite().any()
        for row in (2, 4):
            torch.testing.assert_close(channel(kind, out, row), channel(kind, good, row))


@pytest.mark.parametrize("kind", WEIGHTED)
def test_safe_merge_of_non_finite_weight_raises(device, kind):
    model = perturb(adapted(kind, device))
    base, magnitude = parts(model)
    before = base.weight.detach().clone()
    with torch.no_grad(), dorajit.patch_peft(strict=True):
        magnitude.weight.view(-1)[3] = float("nan")
        with pytest.raises(ValueError, match="NaNs detected in the merged weights"):
            model.merge_adapter(safe_merge=True)
    assert torch.equal(base.weight, before)


def test_convolution_with_groups_is_left_to_peft(device, launches, monkeypatch):
    """PEFT's norm of such a weight is not that of its rows; checkpoints depend on it."""
    def made():
        torch.manual_seed(3)
        config = LoraConfig(use_dora=True, target_modules=["0"], r=4)
        with pytest.warns(UserWarning, match="groups > 1"):
            return get_peft_model(nn.Sequential(nn.Conv2d(4, 8, 3, padding=1, groups=2)).to(device), config)
    x = torch.randn(2, 4, 6, 6, device=device)
    expected = results(perturb(made()), x)
    with dorajit.patch_peft(strict=True) as patch:
        before = patch.declined.get("the convolution has 2 groups", 0)
        launches()
        assert_same(results(perturb(made()), x), expected, 0)
        model = perturb(made())
        for name in "_foldable", "_unsupported", "_gain", "inspect":  # it is declined before the layer is examined
            monkeypatch.setattr(layers, name, None)
        assert torch.equal(model(x), expected[0])
        assert launches() == {} and patch.declined["the convolution has 2 groups"] == before + 2
    monkeypatch.undo()
    with dorajit.patch_peft(made()):
        pass


def test_layers_without_dora_in_peft_raise_as_in_peft():
    with dorajit.patch_peft(strict=True), pytest.raises(ValueError, match="DoRA|dora"):
        get_peft_model(nn.Sequential(nn.MultiheadAttention(8, 2)), LoraConfig(use_dora=True, target_modules=["0"]))
