"""patch_peft and PEFT against float64: errors of 16-bit types, and gradients of CLIP's towers."""

import copy

import dorajit
import pytest
import torch
import torch.nn.functional as F

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft.tuners.lora import LoraLayer
from peft_models import KINDS, model_and_input, results
from perturbed import perturb
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint
from transformers import CLIPConfig, CLIPModel

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
        theirs = errors(results(model, x), exact)
        with dorajit.patch_peft(strict=True):
            ours = errors(results(model, x), exact)
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
