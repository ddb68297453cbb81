"""patch_peft: loading, switching, merging and offloading of adapters; DoraCaching."""

import warnings

import dorajit
import pytest
import torch

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft import (LoraConfig, LoraRuntimeConfig, PeftModel, get_peft_model_state_dict, inject_adapter_in_model,
                  set_peft_model_state_dict)
from peft.tuners.lora import dora
from peft_models import KINDS, Base, adapted, assert_same, model_and_input, results
from reference import perturb

needs_caching = pytest.mark.skipif(not hasattr(dora, "ENABLE_DORA_CACHING"), reason="this PEFT has no DoraCaching")
MADE = ["patched", "unpatched"]


def patched(yes=True):
    return dorajit.patch_peft(strict=True) if yes else warnings.catch_warnings()


def config(**options):
    return LoraConfig(use_dora=True, target_modules=["layer"], r=4, lora_alpha=8, **options)


def layer_of(model):
    return model.base_model.model.layer


@pytest.mark.parametrize("kind", ["linear", "conv2d", "embedding"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("low_cpu_mem_usage", [True, False])
@pytest.mark.parametrize("saved", MADE)
def test_loaded_adapter_equals_the_saved_one(device, tmp_path, kind, dtype, low_cpu_mem_usage, saved):
    with patched(saved == "patched"):
        model, x = model_and_input(kind, device, dtype)
        expected = model(x)
        model.save_pretrained(tmp_path)
    def load(by_ours):
        torch.manual_seed(3)
        with patched(by_ours):
            loaded = PeftModel.from_pretrained(Base(kind).to(device, dtype), tmp_path,
                                               low_cpu_mem_usage=low_cpu_mem_usage)
            step = 1e-5 if dtype is torch.float32 else 6e-2
            torch.testing.assert_close(loaded(x), expected, rtol=step, atol=step)
            loaded.load_adapter(tmp_path, "other", low_cpu_mem_usage=low_cpu_mem_usage)
        return [get_peft_model_state_dict(loaded, adapter_name=name) for name in ("default", "other")]
    written = get_peft_model_state_dict(model)
    for ours, theirs in zip(load(True), load(False)):
        assert ours.keys() == theirs.keys() == written.keys()
        for key, value in ours.items():
            assert value.dtype == theirs[key].dtype and torch.equal(value, theirs[key]), key
            torch.testing.assert_close(value.float(), written[key].float(), rtol=1e-2, atol=1e-2)


def test_loaded_magnitude_is_not_replaced_by_norms(device):
    """Into a layer that keeps its exact norms, because its magnitude has 16 bits."""
    base = Base("linear").to(device, torch.bfloat16)
    with patched():
        inject_adapter_in_model(config(), base, "default")
        state = {key: torch.full_like(value, 0.25) for key, value in get_peft_model_state_dict(base).items()}
        set_peft_model_state_dict(base, state)
        layer = base.layer.lora_magnitude_vector["default"]
        dora_model = adapted("linear", device, torch.bfloat16).base_model
        dora_model.model.layer = base.layer
        dora_model._cast_adapter_dtype("default")
    assert layer.weight.dtype == torch.float32 and (layer.weight == 0.25).all()


def train_adapters(model):
    for name, one in model.named_parameters():
        one.requires_grad_("lora_" in name)
    return perturb(model)


@pytest.mark.parametrize("kind", ["linear", "conv2d", "embedding"])
def test_results_of_active_adapters_match_peft(device, layer_launches, kind):
    model = adapted(kind, device)
    model.add_adapter("other", LoraConfig(use_dora=True, target_modules=["layer"], r=2, use_rslora=True))
    model.add_adapter("plain", LoraConfig(target_modules=["layer"], r=2))
    train_adapters(model)
    x = model.base_model.model.example(device)
    def outputs():
        found = []
        for names in ("default", "other", "plain", ["default", "other"], ["other", "default"], ["plain", "default"]):
            model.base_model.set_adapter(names)
            for name, one in model.named_parameters():
                one.requires_grad_("lora_" in name)
            found.append(results(model, x))
        with torch.no_grad(), model.disable_adapter():
            return found, model(x)
    expected, base = outputs()
    with patched():
        layer_launches()
        found, without = outputs()
        # One alone twice, two together twice, one together with a plain LoRA.
        assert layer_launches()["compose_residual"] == 7
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, 1e-5)
    assert torch.equal(without, base)
    assert not torch.allclose(found[0][0], found[1][0])


@pytest.mark.parametrize("kind", ["linear", "conv2d", "embedding"])
@pytest.mark.parametrize("safe", [True, False])
def test_merging_several_adapters_matches_peft(device, kind, safe):
    def merged(by_ours):
        torch.manual_seed(4)
        model = adapted(kind, device).eval()
        model.add_adapter("other", config())
        model.base_model.set_adapter(["default", "other"])
        train_adapters(model)
        weight = layer_of(model).base_layer.weight
        with patched(by_ours), torch.no_grad():
            model.merge_adapter(safe_merge=safe)
            merged = weight.detach().clone()
            model.unmerge_adapter()
            return merged, weight.detach().clone()
    torch.testing.assert_close(merged(True), merged(False), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("safe", [True, False])
def test_norms_after_merging_use_the_merged_weight(device, safe):
    """merge() may write through .data, which does not change the version."""
    model, x = model_and_input("linear", device, trains=False)
    with patched(), torch.no_grad():
        model(x)
        model.merge_adapter(safe_merge=safe)
        layer_of(model).merged_adapters.clear()  # the merged weight becomes the base weight
        found = model(x)
    with torch.no_grad():
        torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_dora", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_norms_after_olora_use_the_changed_weight(device, is_dora, whole):
    """A new OLoRA adapter subtracts its factors from the base weight, through .data."""
    model, x = model_and_input("linear", device, trains=False)
    added = LoraConfig(use_dora=is_dora, target_modules=["layer"], r=4, init_lora_weights="olora")
    with dorajit.patch_peft(None if whole else model, strict=True), torch.no_grad():
        model(x)
        model.add_adapter("other", added)
        found = model(x)
    with torch.no_grad():
        torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)
        if is_dora:
            layer = layer_of(model)
            dense = (layer.get_base_layer().weight + layer.scaling["other"]
                     * layer.lora_B["other"].weight @ layer.lora_A["other"].weight)
            torch.testing.assert_close(layer.lora_magnitude_vector["other"].weight, dense.norm(dim=1))


@pytest.mark.parametrize("kind", ["linear", "conv1d_gpt2"])
def test_ephemeral_offload_matches_peft(device, layer_launches, monkeypatch, kind):
    """Without a GPU, tensors that PEFT would move to the GPU stay on the CPU."""
    asked, to = [], torch.Tensor.to
    def stay(self, *args, **kwargs):
        if args[:1] == ("cuda",):
            asked.append(args)
            args = ("cpu",)
        return to(self, *args, **kwargs)
    if device == "cpu":
        monkeypatch.setattr(torch.Tensor, "to", stay)
    runtime = LoraRuntimeConfig(ephemeral_gpu_offload=True)
    def made(by_ours):
        with patched(by_ours):
            layer_launches()
            model = adapted(kind, "cpu", runtime_config=runtime)
            assert bool(layer_launches()) == by_ours
        return layer_of(model).lora_magnitude_vector["default"].weight
    ours, theirs = made(True), made(False)
    assert ours.device == theirs.device == torch.device("cpu")
    torch.testing.assert_close(ours, theirs)
    assert asked or device != "cpu"


@needs_caching
@pytest.mark.parametrize("kind", KINDS)
def test_dora_caching_computes_norms_once_and_discards_them(device, layer_launches, kind):
    from peft.helpers import DoraCaching
    model, x = model_and_input(kind, device, trains=False)
    with torch.no_grad(), patched():
        expected = model(x)
        with DoraCaching():
            layer_launches()
            assert torch.equal(model(x), expected) and torch.equal(model(x), expected)
            assert layer_launches()["norm"] == 1
            model.train()
            model(x)
            model(x)
            assert layer_launches()["norm"] == 2
            model.eval()
            next(one for name, one in model.named_parameters() if "magnitude" in name).mul_(1.5)
            assert not torch.equal(model(x), expected)  # the gain is kept with the norm, but not beyond a write
        assert all(one._dora_cache for one in layer_of(model).lora_magnitude_vector.values())
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "lora_embedding_B" in name:
                parameter.mul_(2)
        expected = model(x)
        with DoraCaching():
            assert torch.equal(model(x), expected)


@needs_caching
def test_caches_of_adapters_are_separate(device):
    from peft.helpers import DoraCaching
    model = adapted("linear", device).eval()
    model.add_adapter("other", config())
    train_adapters(model)
    x = model.base_model.model.example(device)
    def both():
        for name in ("default", "other"):
            model.set_adapter(name)
            yield model(x)
    with torch.no_grad(), patched():
        expected = list(both())
        with DoraCaching():
            for _ in range(2):
                assert all(map(torch.equal, both(), expected))


@needs_caching
def test_training_pass_after_a_cached_one_in_inference_mode_has_gradients(device):
    from peft.helpers import DoraCaching
    model, x = model_and_input("linear", device, trains=False)
    with patched(), DoraCaching():
        with torch.inference_mode():
            model(x)
        model(x).square().sum().backward()
    assert layer_of(model).lora_magnitude_vector["default"].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", [["default", "other", "__base__", "plain", "default"], ["other"] * 5])
def test_rows_of_one_batch_have_their_own_adapters(device, layer_launches, kind, names):
    model = adapted(kind, device)
    options = {"fan_in_fan_out": kind == "conv1d_gpt2"}
    model.add_adapter("other", config(**options))
    model.add_adapter("plain", LoraConfig(target_modules=["layer"], r=2, **options))
    for name in ("default", "other", "plain"):
        model.set_adapter(name)
        perturb(model)
    model.eval()
    x = torch.cat([model.base_model.model.example(device) for _ in range(3)])[:5]

    def row(one, name):
        if name == "__base__":
            with model.disable_adapter():
                return model(x[one:one + 1])
        model.set_adapter(name)
        return model(x[one:one + 1])
    expected = torch.cat([row(one, name) for one, name in enumerate(names)])
    without = torch.cat([row(one, "__base__") for one in range(5)])
    with patched():
        layer_launches()
        found = model(x, adapter_names=names)
        counts = layer_launches()
        with model.disable_adapter():
            base = model(x, adapter_names=names)
        with pytest.raises(ValueError, match="Length of `adapter_names`"):
            model(x, adapter_names=names[1:])
        model.base_model.disable_adapter_layers()
        torch.testing.assert_close(model(x, adapter_names=names), without, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert counts["compose_residual"] == len(set(names) & {"default", "other"})
    torch.testing.assert_close(base, without, rtol=1e-6, atol=1e-6)
