"""Norms under gradient checkpointing are computed once for a forward pass and its recomputation."""

import copy
import functools
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (CheckpointPolicy, checkpoint,
                                    create_selective_checkpoint_contexts)

import dorajit
from dorajit.norms import norm_kernel, recomputation


@pytest.fixture(autouse=True)
def forgotten():
    recomputation._kept.clear()


@pytest.fixture
def made(monkeypatch):
    """Counts computations of norms, alone or together with the gain."""
    calls = []
    for name in ("norms", "gain_type"):  # each launch that computes a gain asks for its type
        monkeypatch.setattr(norm_kernel, name, functools.partial(_counted, calls, getattr(norm_kernel, name)))
    return calls


def _counted(calls, compute, *given, **options):
    calls.append(1)
    return compute(*given, **options)


def layer_and_input(device):
    torch.manual_seed(0)
    layer = dorajit.nn.DoRALinear(nn.Linear(24, 40, device=device), 4)
    nn.init.normal_(layer.lora_B.weight)
    return layer, torch.randn(5, 24, device=device, requires_grad=True)


def gradients(layer, x, step):
    step(layer, x).square().sum().backward()
    found = [x.grad, *(one.grad for one in layer.parameters() if one.requires_grad)]
    x.grad = None
    layer.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_pass_reuses_norms_of_the_first(device, made, reentrant):
    layer, x = layer_and_input(device)
    wanted = gradients(layer, x, lambda layer, x: layer(x))
    recomputation._kept.clear()  # discard the norms of this pass, which was not recomputed
    for _ in range(2):
        del made[:]
        found = gradients(layer, x, lambda layer, x: checkpoint(layer, x, use_reentrant=reentrant))
        assert len(made) == 1
        assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("name", ["base_layer", "lora_A", "lora_B"])
def test_forward_pass_after_a_change_recomputes_norms(device, made, name):
    layer, x = layer_and_input(device)
    weight = getattr(layer, name).weight
    del made[:]
    out = checkpoint(layer, x, use_reentrant=False)
    with torch.no_grad():
        weight.mul_(1.5)
    torch.autograd.grad(out.sum(), layer.lora_magnitude_vector)
    assert len(made) == 2
    first = layer.gain()
    weight.data.mul_(1.5)  # does not change the version
    assert not torch.equal(layer.gain(), first)


def test_changed_scale_recomputes_norms(device, made):
    layer, x = layer_and_input(device)
    del made[:]
    out = checkpoint(layer, x, use_reentrant=False)
    layer.scaling *= 2
    torch.autograd.grad(out.sum(), layer.lora_magnitude_vector)
    assert len(made) == 2


@pytest.mark.parametrize("training, grad, kept", [(True, True, 0), (False, False, 0), (False, True, 0),
                                                  (True, False, 1)])
def test_only_pass_that_may_be_recomputed_keeps_norms(device, training, grad, kept):
    """Reentrant checkpoints run the layer without a graph."""
    layer, x = layer_and_input(device)
    layer.train(training)
    with torch.set_grad_enabled(grad):
        layer(x)
    assert len([one for one in recomputation._kept.values() if one.norms is not None]) == kept


def test_recomputed_pass_reuses_no_norms_of_a_pass_in_inference_mode(device):
    layer, x = layer_and_input(device)
    wanted = gradients(layer, x, lambda layer, x: layer(x))
    with torch.inference_mode():
        layer(x)
    with dorajit.frozen_weights(layer):  # keeps the norms of the first run elsewhere
        out = checkpoint(layer, x, use_reentrant=True)
    assert all(map(torch.equal, gradients(layer, x, lambda *_: out), wanted))


def test_kept_norms_are_freed_with_the_layer(device):
    layer, x = layer_and_input(device)
    out = checkpoint(layer, x, use_reentrant=False)
    kept = weakref.ref(recomputation._kept[layer].norms[0])
    del layer, out
    gc.collect()
    assert kept() is None


def test_patched_peft_reuses_norms_in_recomputation(device, made):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(24, 40, device=device))
    model = peft.get_peft_model(base, peft.LoraConfig(use_dora=True, r=4, target_modules=["0"]))
    x = torch.randn(5, 24, device=device, requires_grad=True)
    with dorajit.patch_peft(model):
        del made[:]
        checkpoint(model, x, use_reentrant=False).square().sum().backward()
    assert len(made) == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_passes_that_write_weights_compute_their_own_norms(device, reentrant):
    layer, x = layer_and_input(device)
    factors = [torch.randn_like(layer.lora_A.weight) for _ in range(3)]

    def write_and_run(x, factor):
        layer.lora_A.weight.data.copy_(factor)  # does not change the version
        return layer(x)

    passes = [checkpoint(write_and_run, x, factor, use_reentrant=reentrant) for factor in factors]
    for out, factor in zip(passes, factors):  # backward in the order of the forward passes
        alone = copy.deepcopy(layer)
        alone.lora_A.weight.data.copy_(factor)
        wanted = torch.autograd.grad(alone(x).square().sum(), x)
        x.grad = None
        out.square().sum().backward()
        torch.testing.assert_close(x.grad, wanted[0])


@pytest.mark.parametrize("operation", ["_to_copy", "mm", "bmm", "addmm", "empty_like"])
def test_selective_checkpointing_has_right_gradients(device, operation):
    layer, x = layer_and_input(device)
    layer.lora_A.bfloat16(), layer.lora_B.bfloat16()
    layer.forward = functools.partial(_mixed_forward, layer)

    kept = getattr(torch.ops.aten, operation).default

    def save(_, called, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if called is kept else CheckpointPolicy.PREFER_RECOMPUTE

    wanted = gradients(layer, x, lambda layer, x: layer(x))
    for _ in range(2):
        found = gradients(layer, x, lambda layer, x: checkpoint(
            layer, x, use_reentrant=False,
            context_fn=functools.partial(create_selective_checkpoint_contexts, save,
                                         allow_cache_entry_mutation=True)))
        assert all(map(torch.equal, found, wanted))


def _mixed_forward(layer, x):
    gain = layer.gain()
    lora = layer.lora_B(layer.lora_A(x.bfloat16())).float()
    return dorajit.fused_dora_compose_autograd(lora, layer.base_layer(x), gain, layer.scaling)
