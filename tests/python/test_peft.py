"""patch_peft: a patched model has the results of PEFT's DoRA, with errors in 16-bit types that are not larger."""

import copy
import sys
import warnings

import dorajit
import pytest
import torch
import torch.nn.functional as F
from dorajit.norms import norm
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft.tuners.lora import LoraLayer, dora
from peft_models import KINDS, Checkpointed, adapted, assert_same, model_and_input, results
from reference import perturb
from transformers import CLIPConfig, CLIPModel


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


# Allowed ratio to PEFT's error: sums in another order may have a slightly larger or smaller error.
FARTHER = 1.25


def errors(found, exact):
    """The error of each result, relative to its norm."""
    pairs = [("out", found[0], exact[0]), *((name, one, exact[1][name]) for name, one in found[1].items())]
    if found[2] is not None:
        pairs.append(("x", found[2], exact[2]))
    return {name: ((one.double() - other).norm() / other.norm()).item() for name, one, other in pairs}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("adapter", ["float32", "half"])
@pytest.mark.parametrize("autocast", [True, False])
def test_patched_model_errors_are_not_larger_than_those_of_peft(device, kind, dtype, adapter, autocast):
    model, x = model_and_input(kind, device, dtype, autocast=adapter == "float32")
    exact = results(copy.deepcopy(model).double(), x.double() if x.is_floating_point() else x)
    with torch.autocast(device, dtype=dtype, enabled=autocast):
        theirs_found = results(model, x)
        with dorajit.patch_peft(strict=True):
            ours_found = results(model, x)
    assert ours_found[0].dtype is theirs_found[0].dtype and ours_found[1].keys() == theirs_found[1].keys()
    theirs, ours = errors(theirs_found, exact), errors(ours_found, exact)
    # The delta and its sum with the base result are each rounded, by at most half an ulp.
    rounding = torch.finfo(dtype).eps
    for name, error in ours.items():
        assert error <= max(FARTHER * theirs[name], rounding), (name, error, theirs[name])


def clip(device):
    """(CLIP's towers with adapters, the same in float64 without adapters, the inputs of two calls)."""
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    base = CLIPModel(CLIPConfig(
        text_config={**tower, "vocab_size": 99, "max_position_embeddings": 16, "eos_token_id": 98},
        vision_config={**tower, "image_size": 32, "patch_size": 8}, projection_dim=16)).to(device)
    plain = copy.deepcopy(base).double()
    config = peft.LoraConfig(use_dora=True, r=4, lora_alpha=8, target_modules=[
        "patch_embedding", "position_embedding", "token_embedding", "q_proj", "k_proj", "v_proj", "fc1", "fc2"])
    # The text ends with the token that CLIP takes its features from. At an earlier position attention has fewer keys, and
    # at the first one the gradients of q and k are 0, with rounding errors that have no relation to their size.
    inputs = [{"input_ids": F.pad(torch.randint(98, (4, length), device=device), (0, 1), value=98), "return_loss": True,
               "pixel_values": torch.randn(4, 3, 32, 32, device=device)} for length in (11, 15)]
    return perturb(peft.get_peft_model(base, config)), plain, inputs


def gradients(call, leaves, inputs):
    """The gradients of the sum of two calls' losses, so that one graph uses each layer twice."""
    loss = sum(call(**one).loss for one in inputs)
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))


def gradients_of_formula(model, plain, inputs):
    """float64 gradients of layers without adapters and with the weights g (W + s B A), g = magnitude / norm per row.
    The norm is a constant."""
    leaves = {name: one.detach().double().requires_grad_() for name, one in model.named_parameters()
              if one.requires_grad}
    weights = {}
    for path, layer in model.base_model.model.named_modules():
        if not isinstance(layer, LoraLayer):
            continue
        a, b, magnitude = (next(leaf for name, leaf in leaves.items() if f".{path}.{part}" in name)
                           for part in ("lora_A" if layer.lora_A else "lora_embedding_A",
                                        "lora_B" if layer.lora_B else "lora_embedding_B", "lora_magnitude_vector"))
        weight = plain.get_submodule(path).weight
        rows = (weight.flatten(1) if layer.lora_A else weight.T) + (
            layer.scaling["default"] * b.flatten(1) @ a.flatten(1))
        rows = magnitude.reshape(-1, 1) / rows.detach().norm(dim=1, keepdim=True) * rows
        weights[f"{path}.weight"] = rows.view(weight.shape) if layer.lora_A else rows.T
    return gradients(lambda **one: functional_call(plain, weights, (), one), leaves, inputs)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_gradients_of_clip_are_those_of_the_formula_with_the_patch_and_without(device, checkpointed):
    model, plain, inputs = clip(device)
    exact = gradients_of_formula(model, plain, inputs)
    leaves = {name: one for name, one in model.named_parameters() if one.requires_grad}
    call = (lambda **one: checkpoint(model, use_reentrant=False, **one)) if checkpointed else model
    theirs = gradients(call, leaves, inputs)
    with dorajit.patch_peft(strict=True) as patch:
        declined = patch.declined
        ours = gradients(call, leaves, inputs)
        assert patch.declined == declined
    assert any("patch_embedding" in name for name in exact) and any("position_embedding" in name for name in exact)
    for found in (theirs, ours):
        for name, one in found.items():
            torch.testing.assert_close(one.double(), exact[name], rtol=0, atol=3e-5 * exact[name].abs().max().item(),
                                       msg=lambda m, name=name: f"{name}: {m}")
