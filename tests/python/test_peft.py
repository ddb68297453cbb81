"""patch_peft: a patched model has the results of PEFT's DoRA."""

import copy
import sys
import warnings

import dorajit
import pytest
import torch
from dorajit.norms import norm
from torch import nn

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft import LoraConfig
from peft.tuners.lora import dora
from peft_models import KINDS, Checkpointed, adapted, assert_same, model_and_input, results
from perturbed import perturb


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lora_dropout", [0.0, 0.5])
def test_patched_model_matches_peft_in_float32(device, layer_launches, kind, bias, lora_dropout):
    model, x = model_and_input(kind, device, bias=bias, lora_dropout=lora_dropout)
    expected = results(model, x)
    layer_launches()
    with dorajit.patch_peft(strict=True) as patch:
        found = results(model, x)
        # With dropout the delta uses another base result than the one that it is added to. The node of a linear layer
        # has one pass more for the gradient of that base result.
        apart = lora_dropout > 0 and kind != "embedding"
        ops = ["compose_residual", "residual_backward"]
        if apart:
            ops = [*ops, "backward"] if kind in ("linear", "conv1d_gpt2") else ["compose_inner", "backward"]
        assert layer_launches() == {"norm": 1, **dict.fromkeys(ops, 1)}
    assert not patch.refused
    assert_same(found, expected, 1e-5)
    # A second run gives the same bits, except for convolutions on a GPU, which are not deterministic.
    assert_same(results(model, x), expected, 0 if device == "cpu" else 1e-5)
    assert layer_launches() == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("autocast_adapter", [True, False])
def test_patched_model_matches_peft_in_bfloat16(device, kind, autocast_adapter):
    model, x = model_and_input(kind, device, torch.bfloat16, autocast=autocast_adapter)
    expected = results(model, x)
    with dorajit.patch_peft(strict=True):
        assert_same(results(model, x), expected, 6e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_patched_model_matches_peft_under_autocast(device, kind):
    model, x = model_and_input(kind, device, torch.bfloat16)
    with torch.autocast(device, dtype=torch.bfloat16):
        expected = results(model, x)
        with dorajit.patch_peft(strict=True):
            assert_same(results(model, x), expected, 6e-2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("autocast", [True, False])
def test_new_adapter_does_not_change_outputs(device, kind, dtype, when, autocast):
    if when == "before":
        with dorajit.patch_peft(strict=True):
            model = adapted(kind, device, dtype)
    else:
        model = adapted(kind, device, dtype)
    if kind == "embedding":  # PEFT initialises A of embeddings to zero, so B A is zero
        assert not next(iter(model.base_model.model.layer.lora_embedding_A.values())).any()
    x = model.base_model.model.example(device, dtype)
    mended = model if when == "after" else None  # magnitudes created under the patch need no correction
    with torch.no_grad(), dorajit.patch_peft(mended, strict=True):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=autocast):
            found = model(x)
            with model.disable_adapter():
                assert torch.equal(found, model(x))


def test_magnitudes_have_the_types_of_peft(device):
    for dtype in (torch.float32, torch.bfloat16):
        for autocast in (True, False):
            plain = adapted("linear", device, dtype, autocast=autocast)
            with dorajit.patch_peft(strict=True):
                patched = adapted("linear", device, dtype, autocast=autocast)
            for one, other in zip(plain.parameters(), patched.parameters()):
                assert one.dtype == other.dtype and one.shape == other.shape
                torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)


def peft_unmerges_conv1d():
    model = adapted("conv1d_gpt2", "cpu")
    model.merge_adapter()
    try:
        model.unmerge_adapter()
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("safe", [True, False])
def test_merge_and_unmerge_match_peft(device, kind, safe):
    if kind == "conv1d_gpt2" and not peft_unmerges_conv1d():
        pytest.skip("this PEFT itself cannot unmerge DoRA from a Conv1D")
    model, x = model_and_input(kind, device, trains=False)
    weight = model.base_model.model.layer.base_layer.weight
    before = weight.detach().clone()
    with torch.no_grad(), dorajit.patch_peft(strict=True):
        expected = model(x)
        model.merge_adapter(safe_merge=safe)
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)
        model.unmerge_adapter()
        torch.testing.assert_close(model.base_model.model.layer.base_layer.weight, before)
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model.merge_and_unload()(x), expected, rtol=1e-4, atol=1e-4)


def test_norm_after_merge_of_another_adapter_uses_the_merged_weight(device):
    model = adapted("linear", device)
    model.add_adapter("plain", LoraConfig(target_modules=["layer"], r=4, init_lora_weights=False))
    x = model.base_model.model.example(device)
    perturb(model)
    def outputs():
        with torch.no_grad():
            model.set_adapter("default")
            first = model(x)
            layer = model.base_model.model.layer
            layer.merge(adapter_names=["plain"])
            layer.merged_adapters.clear()  # the merged weight becomes the base weight
            return first, model(x)
    state = copy.deepcopy(model.state_dict())
    expected = outputs()
    model.load_state_dict(state)
    with dorajit.patch_peft(strict=True):
        torch.testing.assert_close(outputs(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "embedding"])
def test_several_active_adapters_match_peft(device, kind):
    model = adapted(kind, device)
    model.add_adapter("other", LoraConfig(use_dora=True, target_modules=["layer"], r=2, use_rslora=True))
    perturb(model)
    x = model.base_model.model.example(device)
    for names in (["default"], ["other"], ["default", "other"]):
        model.base_model.set_adapter(names)
        for one in model.parameters():
            one.requires_grad_(one.is_leaf and any(one is p for n, p in model.named_parameters() if "lora" in n))
        expected = results(model, x)
        with dorajit.patch_peft(strict=True):
            assert_same(results(model, x), expected, 1e-5)


def test_nested_patches_can_be_undone_in_any_order(device, layer_launches):
    model = adapted("linear", device)
    x = model.base_model.model.example(device)
    methods = {name: vars(dora.DoraLinearLayer)[name] for name in ("forward", "update_layer")}
    def native():
        layer_launches()
        model(x)
        return bool(layer_launches())
    outer = dorajit.patch_peft()
    with dorajit.patch_peft() as inner:
        assert native()
    inner.undo()
    assert native()
    outer.undo()
    outer.undo()
    assert not native() and "undone" in repr(outer)
    assert methods == {name: vars(dora.DoraLinearLayer)[name] for name in methods}


@pytest.mark.parametrize("kind", ["linear", "conv2d", "embedding"])
def test_patch_of_one_model_leaves_others_unpatched(device, layer_launches, kind):
    one, other = adapted(kind, device), adapted(kind, device)
    x = one.base_model.model.example(device)
    patch = dorajit.patch_peft(one)
    layer_launches()
    other(x)
    assert layer_launches() == {}
    one(x)
    assert layer_launches()
    with dorajit.patch_peft(one):
        pass
    one(x)
    assert layer_launches()
    patch.undo()
    one(x)
    assert layer_launches() == {}
    with pytest.raises(ValueError, match="has no DoRA layers"):
        dorajit.patch_peft(nn.Linear(2, 2))


def test_patched_model_with_gradient_checkpointing_matches_peft(device, layer_launches):
    model, x = model_and_input("linear", device)
    with dorajit.patch_peft():
        expected = results(model, x)
        layer_launches()
        found = results(Checkpointed(model), x)
        assert layer_launches() == {"norm": 1, "compose_residual": 2, "residual_backward": 1}
    assert torch.equal(found[0], expected[0]) and torch.equal(found[2], expected[2])


@pytest.mark.parametrize("kind", ["linear", "conv2d", "embedding"])
def test_end_of_a_patch_before_the_second_run_of_a_checkpoint_warns(device, kind):
    model, x = model_and_input(kind, device)
    with pytest.warns(RuntimeWarning, match="its backward pass is still to come"):
        with dorajit.patch_peft():
            out = Checkpointed(model)(x)
    with warnings.catch_warnings(), dorajit.patch_peft():
        warnings.simplefilter("error")
        with dorajit.patch_peft():  # another patch stays active
            out = Checkpointed(model)(x)
        out.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with dorajit.patch_peft():
            Checkpointed(model)(x)  # its graph ends
            with torch.no_grad():
                kept = Checkpointed(model)(x)
    assert kept.shape == out.shape


@pytest.mark.parametrize("kind", ["conv2d", "embedding"])
def test_norm_and_gain_of_a_small_layer_are_one_launch(launches, monkeypatch, kind):
    model, x = model_and_input(kind, "cpu")
    monkeypatch.setattr(norm, "_computed", None)
    with dorajit.patch_peft():
        launches()
        model(x)
        assert launches() == {"weight_norm": 1, "compose_residual": 1}


def host_work(step):
    """(calls of functions, operators of PyTorch) in a step."""
    calls = 0
    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")
    step()
    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(None)
    with torch.autograd.profiler.profile() as profile:
        step()
    return calls, sum(one.name.startswith("aten::") for one in profile.function_events)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trains", [True, False])
def test_layer_makes_few_calls_for_each_operator_that_it_saves(kind, trains):
    """The time of a tiny layer is that of the host, to which an operator costs as much as four calls or more."""
    model = adapted(kind, "cpu").train(trains)
    x = model.base_model.model.example("cpu")
    def step():
        with torch.set_grad_enabled(trains):
            out = model(x)
            if trains:
                torch.autograd.backward(out, out)
    calls, operators = host_work(step)
    with dorajit.patch_peft(strict=True):
        ours = host_work(step)
    assert ours[0] - calls <= 4 * (operators - ours[1]), (ours, calls, operators)
