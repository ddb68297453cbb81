"""Layers whose forward pass a checkpoint runs again in the backward pass."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts)

import dorajit
from dorajit.layers import node, recomputation


def layer_and_input(device, **options):
    torch.manual_seed(0)
    layer = dorajit.nn.DoRALinear(nn.Linear(24, 40, device=device), 4, **options)
    nn.init.normal_(layer.lora_B.weight)
    return layer, torch.randn(5, 24, device=device, requires_grad=True)


def gradients(layer, x, step):
    step(layer, x).square().sum().backward()
    found = [x.grad, *(one.grad for one in layer.parameters() if one.requires_grad)]
    x.grad = None
    layer.zero_grad()
    return found


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_of_a_checkpoint_are_those_without(device, layer_launches, layers, reentrant):
    layer, x = layer_and_input(device)
    if layers == 2:
        layer = nn.Sequential(layer, nn.Linear(40, 24, device=device), layer_and_input(device)[0])
    wanted = gradients(layer, x, lambda layer, x: layer(x))
    for _ in range(2):
        layer_launches()
        found = gradients(layer, x, lambda layer, x: checkpoint(layer, x, use_reentrant=reentrant))
        assert layer_launches() == {"norm": layers * (1 + reentrant), "compose_residual": 2 * layers,
                                    "residual_backward": layers}
        assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("factors", [torch.float32, torch.bfloat16])
def test_first_run_of_a_checkpoint_makes_no_inner(device, factors, autocast, monkeypatch):
    layer, x = layer_and_input(device)
    layer.lora_A.to(factors), layer.lora_B.to(factors)
    passes = []
    def counted(*arguments):
        passes.append(arguments[4])  # inner_type
        return forward(*arguments)
    forward = node._linear_forward
    monkeypatch.setattr(node, "_linear_forward", counted)
    def run(layer, x):
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            return layer(x)
    wanted = gradients(layer, x, run)
    found = gradients(layer, x, lambda layer, x: checkpoint(run, layer, x, use_reentrant=False))
    assert [one is None for one in passes] == [False, True, False]
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("name", ["base_layer.weight", "lora_A.weight", "lora_B.weight", "lora_magnitude_vector"])
def test_second_run_uses_the_weights_that_it_finds(device, name):
    layer, x = layer_and_input(device)
    out = checkpoint(layer, x, use_reentrant=False)
    with torch.no_grad():
        layer.get_parameter(name).mul_(1.5)
    found = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad(layer(x).sum(), x))


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


def test_runs_of_a_checkpoint_compute_a_norm_once(device, layer_launches):
    layer, x = layer_and_input(device)
    first, second = (checkpoint(layer, x, use_reentrant=False).square().sum() for _ in range(2))
    layer_launches()
    first.backward(retain_graph=True)
    first.backward()
    second.backward()
    assert "norm" not in layer_launches()
    checkpoint(layer, x, use_reentrant=False)
    assert layer_launches()["norm"] == 1


def test_hooks_that_hide_their_checkpoint_share_nothing(device, layer_launches, monkeypatch):
    layer, x = layer_and_input(device)
    find = recomputation._checkpoint_of
    monkeypatch.setattr(recomputation, "_checkpoint_of", lambda hooks: find((functools.partial(hooks[0]), hooks[1])))
    wanted = gradients(layer, x, lambda layer, x: layer(x))
    layer_launches()
    found = gradients(layer, x, lambda layer, x: checkpoint(layer, x, use_reentrant=False))
    assert all(map(torch.equal, found, wanted)) and layer_launches()["norm"] == 2


def test_layer_that_a_checkpoint_calls_twice_computes_its_own_norms(device):
    layer, x = layer_and_input(device)
    factors = [torch.randn_like(layer.lora_A.weight) for _ in range(2)]

    def both(x):
        for factor in factors:
            layer.lora_A.weight.data.copy_(factor)  # does not change the version
            x = layer(x)[..., :x.shape[-1]]
        return x

    found = []
    for reentrant in (True, False):
        checkpoint(both, x, use_reentrant=reentrant).square().sum().backward()
        found.append(x.grad)
        x.grad = None
    assert torch.equal(*found)


def composed(device):
    """A layer whose low-rank product is in 16 bits and whose composition is a call of its own."""
    layer, _ = layer_and_input(device)
    layer.lora_A.bfloat16(), layer.lora_B.bfloat16()
    def forward(x):
        lora = layer.lora_B(layer.lora_A(x.bfloat16())).float()
        return dorajit.fused_dora_compose_autograd(lora, layer.base_layer(x), layer.gain(), layer.scaling)
    layer.forward = forward
    return layer


LAYERS = {"plain": lambda device: layer_and_input(device)[0], "composed": composed,
          "dropout": lambda device: layer_and_input(device, dropout=0.5)[0]}


# PyTorch's dropout writes into tensors that the policy "every" saves.
@pytest.mark.parametrize("kind, saved", [
    *(("composed", f"aten.{name}.default") for name in ("_to_copy", "mm", "bmm", "addmm", "empty_like")),
    *((kind, saved) for kind in ("plain", "dropout") for saved in (
        "aten.zeros.default", "aten.slice.Tensor", "aten.mm.out", "aten.mm.default", "aten.add_.Tensor",
        "dorajit.row_norms.default")), ("plain", "every")])
def test_selective_checkpointing_has_right_gradients(device, kind, saved):
    layer, x = LAYERS[kind](device), layer_and_input(device)[1]

    def save(_, called, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if saved in ("every", str(called)) else CheckpointPolicy.PREFER_RECOMPUTE

    def seeded(layer, x):
        torch.manual_seed(3)
        return layer(x * 1)

    wanted = gradients(layer, x, seeded)
    for _ in range(2):
        context = functools.partial(create_selective_checkpoint_contexts, save,
                                    allow_cache_entry_mutation=kind == "composed")
        found = gradients(layer, x, lambda layer, x: checkpoint(
            functools.partial(seeded, layer), x, use_reentrant=False, context_fn=context))
        torch.testing.assert_close(found, wanted, **({"rtol": 0, "atol": 0} if kind == "composed" else {}))
