"""patch_peft: wrong weights and magnitudes raise an error or have the documented result."""

import dorajit
import pytest
import torch
from torch import nn

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft import LoraConfig, get_peft_model
from peft_models import KINDS, Base, adapted, assert_same, results
from perturbed import perturb

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


@pytest.mark.parametrize("kind, factor", [("linear", "lora_A"), ("linear", "lora_B"),
                                          ("conv2d", "lora_A"), ("conv2d", "lora_B")])
def test_factor_of_wrong_size_raises(device, kind, factor):
    model = adapted(kind, device)
    x = model.base_model.model.example(device)
    module = getattr(model.base_model.model.layer, factor)["default"]
    module.weight = nn.Parameter(torch.ones(module.weight.shape[0] + 1, *module.weight.shape[1:],
                                            device=device))
    with dorajit.patch_peft(), pytest.raises(ValueError, match="argument `lora_B` has shape"):
        model(x)


def test_factor_on_another_device_raises(device):
    model = adapted("linear", device)
    x = model.base_model.model.example(device)
    module = model.base_model.model.layer.lora_A["default"]
    module.weight = nn.Parameter(torch.ones(module.weight.shape, device="meta"))
    with dorajit.patch_peft(), pytest.raises(ValueError, match="`lora_A` is on meta"):
        model(x)


@pytest.mark.parametrize("kind", WEIGHTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_new_adapter_over_zero_row_is_a_no_op_and_trainable(device, kind, dtype):
    """PEFT gives NaN (0 / 0) for such a row. Under the patch a new adapter is a no-op and can be trained."""
    base = Base(kind).to(device, dtype)
    with torch.no_grad():
        row_of(kind, base.layer.weight, 3).zero_()
    config = LoraConfig(use_dora=True, target_modules=["layer"], r=4,
                        fan_in_fan_out=kind == "conv1d_gpt2")
    x = base.example(device, dtype)
    plain = base(x).detach()
    with dorajit.patch_peft(strict=True):
        model = get_peft_model(base, config)
        assert parts(model)[1].weight.flatten()[3] == 1e-12  # 0 could neither be trained nor divided by
        out, gradients, _ = results(model, x)
        assert torch.equal(out, plain)
        assert gradients and all(one.isfinite().all() for one in gradients.values())
        step = 1e-5 if dtype == torch.float32 else 3e-2
        merged = model.merge_and_unload(safe_merge=True)
        torch.testing.assert_close(merged(x), plain, rtol=step, atol=step)


@pytest.mark.parametrize("kind", WEIGHTED)
def test_magnitude_over_zero_row_gives_finite_gain(device, kind):
    """g = magnitude / eps is large and finite."""
    model = adapted(kind, device)
    x = model.base_model.model.example(device)
    base, magnitude = parts(model)
    with torch.no_grad():
        row_of(kind, base.weight, 3).zero_()
    with dorajit.patch_peft(strict=True):
        assert model(x).isfinite().all()
    assert magnitude.weight.flatten()[3] > 0


@pytest.mark.parametrize("kind", WEIGHTED)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["weight", "magnitude"])
def test_non_finite_weight_affects_only_its_channel(device, kind, bad, where):
    model = perturb(adapted(kind, device))
    x = model.base_model.model.example(device)
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


def test_convolution_with_groups_is_left_to_peft(device, launches):
    """PEFT's norm of such a weight is not that of its rows; checkpoints depend on it."""
    class Grouped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(4, 8, 3, padding=1, groups=2)

        def forward(self, x):
            return self.layer(x)
    def made():
        torch.manual_seed(3)
        config = LoraConfig(use_dora=True, target_modules=["layer"], r=4)
        with pytest.warns(UserWarning, match="groups > 1"):
            return get_peft_model(Grouped().to(device), config)
    x = torch.randn(2, 4, 6, 6, device=device)
    expected = results(perturb(made()), x)
    with dorajit.patch_peft(strict=True) as patch:
        before = sum(patch.declined.values())
        launches()
        assert_same(results(perturb(made()), x), expected, 0)
        assert launches() == {} and sum(patch.declined.values()) == before + 1
    with dorajit.patch_peft(made()):
        pass


@pytest.mark.parametrize("make", [lambda: nn.MultiheadAttention(8, 2)])
def test_layers_without_dora_in_peft_raise_as_in_peft(make):
    with dorajit.patch_peft(strict=True), pytest.raises(ValueError, match="DoRA|dora"):
        get_peft_model(nn.Sequential(make()), LoraConfig(use_dora=True, target_modules=["0"]))
