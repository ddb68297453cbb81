"""Rows of a base weight whose norm is 0 or tiny, and magnitudes of 0: new adapters, training, merging."""

import dorajit
import pytest
import torch
from dorajit.operations import gain
from torch import nn

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft import LoraConfig, get_peft_model
from peft_models import KINDS, Base
from perturbed import perturb

ROW = 3
TYPES = [torch.float32, torch.bfloat16, torch.float16]


def rows_of(layer, kind):
    """The weight of a layer with one row per element of the magnitude; a view."""
    return layer.weight.T if kind in ("embedding", "conv1d_gpt2") else layer.weight


def made(kind, device, norm=0.0, dtype=torch.float32, cast=True):
    """(a model whose weight has one row of this norm, the adapted layer, a copy of its weight)."""
    torch.manual_seed(3)
    base = Base(kind, bias=False).to(device, dtype)
    if kind == "conv1d_gpt2":
        base.layer.bias.data.zero_()
    with torch.no_grad():
        row = rows_of(base.layer, kind)[ROW]
        row.mul_(norm / row.float().norm())
    model = get_peft_model(base, LoraConfig(use_dora=True, target_modules=["layer"], r=4, lora_alpha=8,
                                            fan_in_fan_out=kind == "conv1d_gpt2"), autocast_adapter_dtype=cast)
    layer = model.base_model.model.layer
    return model, layer, layer.get_base_layer().weight.detach().clone()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("magnitude", ["made", "zero"])
@pytest.mark.parametrize("dtype", TYPES)
def test_unmerging_restores_zero_rows(device, kind, safe, trained, magnitude, dtype):
    with dorajit.patch_peft(strict=True):
        model, layer, before = made(kind, device, dtype=dtype)
        if trained:
            perturb(model)
        size = layer.lora_magnitude_vector["default"].weight
        with torch.no_grad():
            if magnitude == "zero":  # as in a checkpoint
                size.view(-1)[ROW] = 0
            elif trained:
                size.view(-1)[ROW] = 1e-12
            model.merge_adapter(safe_merge=safe)
            model.unmerge_adapter()
            step = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}[dtype]
            weight = layer.get_base_layer().weight
            torch.testing.assert_close(weight, before, rtol=step, atol=step)
            model.merge_adapter(safe_merge=safe)
            with model.disable_adapter():
                model(model.base_model.model.example(device, dtype))  # unmerges
                torch.testing.assert_close(weight, before, rtol=step, atol=step)


@pytest.mark.parametrize("safe", [True, False])
def test_unmerging_several_adapters_restores_zero_rows(device, safe):
    with dorajit.patch_peft(strict=True), torch.no_grad():
        model, layer, before = made("linear", device)
        model.add_adapter("other", LoraConfig(use_dora=True, target_modules=["layer"], r=4))
        model.base_model.set_adapter(["default", "other"])
        perturb(model)
        for adapter, row in (("default", ROW), ("other", ROW + 1)):
            layer.lora_magnitude_vector[adapter].weight[row] = 0
        model.merge_adapter(safe_merge=safe)
        model.unmerge_adapter()
        torch.testing.assert_close(layer.get_base_layer().weight, before, rtol=1e-4, atol=1e-4)
        assert not layer._caches


@pytest.mark.parametrize("of", ["nn", "peft"])
def test_zero_row_learns(device, of):
    """With a gain of 0, neither B nor the magnitude would have a gradient."""
    torch.manual_seed(0)
    if of == "nn":
        base = nn.Linear(20, 12, bias=False, device=device)
        with torch.no_grad():
            base.weight[ROW] = 0
        layer = model = dorajit.nn.DoRALinear(base, 4)
        magnitude = layer.lora_magnitude_vector
        given = torch.randn(5, 20, device=device)
        assert torch.equal(model(given), base(given))
    else:
        with dorajit.patch_peft(strict=True):
            model, layer, _ = made("linear", device)
        magnitude = layer.lora_magnitude_vector["default"].weight
    x, wanted = torch.randn(64, 20, device=device), torch.randn(64, 12, device=device)
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=0.05)
    with dorajit.patch_peft(strict=True):
        for _ in range(60):
            optimizer.zero_grad()
            (model(x) - wanted).square().mean().backward()
            optimizer.step()
        assert model(x)[:, ROW].abs().max() > 0.1 and magnitude[ROW].abs() > 0.1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("norm", [0.0, 1e-8, 3e-7, 4e-6, 1e-3])
@pytest.mark.parametrize("cast", [True, False])
def test_new_adapter_with_magnitudes_of_any_type_changes_nothing(device, kind, dtype, norm, cast):
    if cast and dtype is torch.float16 and norm < 1e-6:
        pytest.skip("a float32 magnitude below eps is not kept by float16")
    with dorajit.patch_peft(strict=True), torch.no_grad():
        model, layer, before = made(kind, device, norm, dtype, cast)
        model.to(dtype)
        x = model.base_model.model.example(device, dtype)
        assert layer.lora_magnitude_vector["default"].weight.dtype is dtype
        assert torch.equal(model(x), layer.get_base_layer()(x))
        model.merge_adapter()
        torch.testing.assert_close(layer.get_base_layer().weight, before, rtol=1e-2, atol=0)


@pytest.mark.parametrize("dtype", TYPES)
def test_new_magnitude_of_any_norm_has_a_gain_of_exactly_one(device, dtype):
    norms = torch.tensor([0, 1e-8, 3e-7, 4e-6, 1], device=device)
    assert torch.equal(gain.gain(gain.magnitude_of(norms, dtype), norms), torch.ones(5, device=device))


def test_new_layer_cast_to_bfloat16_changes_nothing(device):
    base = nn.Linear(20, 4, bias=False, device=device, dtype=torch.bfloat16)
    with torch.no_grad():
        base.weight *= torch.tensor([[0], [1e-8], [4e-6], [1]], device=device)
        layer = dorajit.nn.DoRALinear(base, 4).bfloat16()
        assert torch.equal(layer.gain(), torch.ones(4, device=device))


def test_patching_a_model_makes_its_zero_rows_trainable(device):
    model, layer, _ = made("linear", device)
    assert layer.lora_magnitude_vector["default"].weight[ROW] == 0
    with dorajit.patch_peft(model, strict=True):
        assert layer.lora_magnitude_vector["default"].weight[ROW] > 0


def test_magnitude_of_an_empty_row_from_an_earlier_version_is_corrected(device):
    model, layer, _ = made("linear", device, dtype=torch.bfloat16, cast=False)
    magnitude = layer.lora_magnitude_vector["default"].weight
    with dorajit.patch_peft(model):
        expected = magnitude.detach().clone()
    with torch.no_grad():
        magnitude[ROW] = 1e-6
    with dorajit.patch_peft(model):
        assert torch.equal(magnitude, expected)
