"""Magnitudes: of rows whose norm is 0 or tiny, in new adapters, training and merging; and of 16 bits, which hardly move in
training: what patch_peft says, how to keep them in float32, and that the layers of dorajit.nn do so by themselves."""

import warnings

import dorajit
import pytest
import torch
from dorajit.operations import gain
from dorajit.peft import report
from reference import perturb
from torch import nn

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft import LoraConfig, PeftModel, get_peft_model
from peft_models import KINDS, Base
from recipes import BF16, F32, IN, OUT, RANK, adapted, is_node, plain

ROW = 3
HALVES = [BF16, torch.float16]
TYPES = [F32, *HALVES]


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
@pytest.mark.parametrize("dtype, cast, norm", [
    *((dtype, cast, norm) for dtype in TYPES for cast in (True, False) for norm in (0.0, 1e-8, 3e-7, 4e-6, 1e-3)
      # float16 does not keep a float32 magnitude below eps.
      if not (cast and dtype is torch.float16 and norm < 1e-6))])
def test_new_adapter_with_magnitudes_of_any_type_changes_nothing(device, kind, dtype, norm, cast):
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


# --- 16 bits -------------------------------------------------------------------------------------

@pytest.fixture
def warned(monkeypatch):
    """The warnings of a process that has not warned yet."""
    monkeypatch.setattr(report, "_has_warned", False)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield lambda: [str(one.message) for one in found if "magnitudes" in str(one.message)]


def magnitudes(model):
    return [one for name, one in model.named_parameters() if "lora_magnitude_vector" in name]


def keep_in_float32(model):
    """The code that the warning and docs/training.md give."""
    for name, one in model.named_parameters():
        if 'lora_magnitude_vector' in name: one.data = one.data.float()


def test_patch_whose_warning_is_an_error_is_undone(warned):
    model = adapted(plain, "cpu", BF16, False)
    warnings.simplefilter("error")
    with pytest.raises(RuntimeWarning, match="magnitudes"):
        dorajit.patch_peft(model, dropout="low_rank")
    assert dorajit.control.state.dropout == "peft" and not is_node(model(torch.randn(3, IN, dtype=BF16)))


def test_warning_of_a_patch_names_its_line(monkeypatch):
    monkeypatch.setattr(report, "_has_warned", False)
    model = adapted(plain, "cpu", BF16, False)
    with pytest.warns(RuntimeWarning, match="magnitudes") as found, dorajit.patch_peft(model):
        pass
    assert [one.filename for one in found if "magnitudes" in str(one.message)] == [__file__]


def test_code_of_the_warning_is_the_one_that_is_tested(warned):
    import inspect
    with dorajit.patch_peft():
        adapted(plain, "cpu", BF16, False)
    message, = warned()
    code = " ".join(inspect.getsource(keep_in_float32).split('"""')[2].split())
    assert code in message and "1 of 1 magnitudes are trained in torch.bfloat16" in message


@pytest.mark.parametrize("dtype", HALVES)
def test_float32_magnitudes_over_16_bit_factors_move_and_are_one_node(device, layer_launches, dtype):
    moved = {}
    for is_kept in (False, True):
        model = adapted(plain, device, dtype, False)
        if is_kept:
            keep_in_float32(model)
        magnitude, = magnitudes(model)
        first = magnitude.detach().clone()
        optimizer = torch.optim.AdamW([magnitude], lr=1e-4, weight_decay=0.0)
        x = torch.randn(16, IN, device=device).to(dtype)
        with dorajit.patch_peft(strict=True):
            layer_launches()
            out = model(x)
            assert is_node(out)
            out.float().square().mean().backward()
            assert layer_launches() == {"norm": 1, "compose_residual": 1, "residual_backward": 1}
            for _ in range(20):
                optimizer.step()
                optimizer.zero_grad()
                model(x).float().square().mean().backward()
        moved[is_kept] = (magnitude != first).float().mean().item()
    assert moved[False] <= (0 if dtype is BF16 else 0.1) and moved[True] > 0.95


@pytest.mark.parametrize("when", ["injection", "patch", "first call"])
def test_warning_comes_once(warned, when):
    model = None if when == "injection" else adapted(plain, "cpu", BF16, when == "first call")
    with dorajit.patch_peft(model if when == "patch" else None):
        if when == "injection":
            model = adapted(plain, "cpu", BF16, False)
        elif when == "first call":
            model.to(BF16)
            assert not warned()
        for _ in range(2):
            model(torch.randn(3, IN).to(BF16))
            adapted(plain, "cpu", BF16, False)
    assert len(warned()) == 1


@pytest.mark.parametrize("of", ["float32", "frozen", "inference", "nn"])
def test_no_warning_without_a_trained_16_bit_magnitude(warned, tmp_path, of):
    if of == "inference":
        adapted(plain, "cpu", BF16, False).save_pretrained(tmp_path)
    with dorajit.patch_peft():
        if of == "inference":
            model = PeftModel.from_pretrained(plain(BF16, True, "cpu"), str(tmp_path), autocast_adapter_dtype=False)
            assert magnitudes(model)[0].dtype is BF16
        elif of == "nn":
            model = dorajit.nn.DoRALinear(nn.Linear(IN, OUT, dtype=BF16), RANK)
        else:
            model = adapted(plain, "cpu", BF16, True)
            if of == "frozen":
                model.requires_grad_(False).to(BF16)
        model(torch.randn(3, IN).to(BF16))
    assert not warned()


# --- dorajit.nn ----------------------------------------------------------------------------------

def layers():
    yield dorajit.nn.DoRALinear(nn.Linear(IN, OUT), RANK), torch.randn(3, IN)
    yield dorajit.nn.DoRAConv2d(nn.Conv2d(3, 4, 3), RANK), torch.randn(2, 3, 5, 5)
    yield dorajit.nn.DoRAEmbedding(nn.Embedding(8, 6), RANK), torch.arange(4)


@pytest.mark.parametrize("cast", [lambda one: one.to(BF16), lambda one: one.half(), lambda one: one.bfloat16(),
                                  lambda one: one.to("cpu", torch.float16), lambda one: one.double().half()])
def test_casts_of_a_layer_leave_its_magnitude(cast):
    for layer, x in layers():
        model = nn.Sequential(layer)
        before = layer.lora_magnitude_vector.detach().clone()
        model(x).square().sum().backward()
        gradient = layer.lora_magnitude_vector.grad.clone()
        cast(model)
        parameter = layer.lora_magnitude_vector
        assert parameter.dtype is parameter.grad.dtype is F32
        assert torch.equal(parameter, before) and torch.equal(parameter.grad, gradient)
        others = [one for one in model.parameters() if one is not parameter]
        assert all(one.element_size() == 2 for one in others)
        model(x.to(others[0].dtype) if x.is_floating_point() else x)


@pytest.mark.parametrize("assign", [False, True])
def test_checkpoint_of_16_bits_loads_as_float32(assign):
    for layer, _ in layers():
        halves = {name: one.to(BF16) for name, one in layer.state_dict().items()}
        layer.load_state_dict(halves, assign=assign)
        assert layer.lora_magnitude_vector.dtype is F32 and layer.lora_magnitude_vector.requires_grad
        assert torch.equal(layer.lora_magnitude_vector, halves["lora_magnitude_vector"].float())
        assert all(type(one) is torch.Tensor and one.dtype is BF16 for one in halves.values())


def test_other_casts_of_a_layer_are_pytorchs():
    for layer, _ in layers():
        assert layer.double().lora_magnitude_vector.dtype is torch.float64
        assert layer.float().lora_magnitude_vector.dtype is F32
        assert layer.to("meta").lora_magnitude_vector.is_meta
