"""dorajit::compose_, which writes into an operand: autograd, checkpoints and transforms."""

import functools

import pytest
import torch
from torch.utils import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import dorajit
from dorajit.operations import expression
from reference import SCALE, operands

compose_ = torch.ops.dorajit.compose_


def through_operator(lora, base, gain):
    compose_(lora, base, gain, SCALE)


def under_a_mode(lora, base, gain):
    with FlopCounterMode(display=False):
        dorajit.fused_dora_compose(lora, base, gain, SCALE)


def compiled(lora, base, gain):
    torch.compile(dorajit.fused_dora_compose, backend="eager")(lora, base, gain, SCALE)


@pytest.mark.parametrize("write", [through_operator, under_a_mode, compiled])
def test_overwritten_saved_tensor_raises_in_backward(write, device):
    torch._dynamo.reset()
    lora, base, gain = operands((4, 8), device)
    leaf = lora.clone().requires_grad_()
    out = leaf.exp()  # the backward pass of exp needs out
    write(out.detach(), base, gain)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_selective_checkpoint_detects_the_write(device):
    lora, base, gain = operands((8, 8), device)
    def step(a):
        with torch.no_grad():
            kept = dorajit.fused_dora_compose(a @ a, base, gain, SCALE)
        return (a * kept).sin().sum()
    context = functools.partial(checkpoint.create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    with pytest.raises(RuntimeError, match="has been mutated"):
        checkpoint.checkpoint(step, lora.requires_grad_(), use_reentrant=False, context_fn=context).backward()


@pytest.mark.parametrize("compiled_with", [None, "eager", "aot_eager"])
def test_in_place_operator_has_right_gradients(device, compiled_with):
    def step(lora, base, gain):
        out = lora * 1
        compose_(out, base, gain, SCALE)
        return out.square().sum()
    if compiled_with is not None:
        torch._dynamo.reset()
    run = step if compiled_with is None else torch.compile(step, backend=compiled_with, fullgraph=True)
    tensors = operands((4, 8), device, torch.float64, grad=True)
    found = torch.autograd.grad(run(*tensors), tensors)
    expected = torch.autograd.grad(expression.compose(*tensors, SCALE).square().sum(), tensors)
    torch.testing.assert_close(found, expected)
    torch.library.opcheck(compose_.default, (tensors[0].detach(), *tensors[1:], SCALE))


def test_in_place_operator_inside_transforms_matches_expression(device):
    lora, base, gain = operands((4, 8), device)
    def written(one):
        out = one * 1
        compose_(out, base, gain, SCALE)
        return out
    tangent = torch.func.jvp(written, (lora,), (torch.ones_like(lora),))[1]
    torch.testing.assert_close(tangent, (gain * SCALE).expand(4, 8))
    found = torch.func.grad(lambda one: written(one).sum())(lora)
    torch.testing.assert_close(found, (gain * SCALE).expand(4, 8))


def test_in_place_operator_on_leaf_that_requires_grad_raises(device):
    lora, base, gain = operands((4, 8), device)
    leaf = lora.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        compose_(leaf, base, gain, SCALE)
    assert torch.equal(leaf, lora)
    with torch.no_grad():
        compose_(leaf, base, gain, SCALE)
    assert leaf._version == 1
    assert torch.equal(leaf, dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False))


@pytest.mark.parametrize("write", [through_operator, under_a_mode, compiled])
def test_in_place_operator_on_inference_tensor_raises(write, device):
    torch._dynamo.reset()
    lora, base, gain = operands((4, 8), device)
    with torch.inference_mode():
        frozen = lora.clone()
    with pytest.raises(RuntimeError, match="inference tensor"):
        write(frozen, base, gain)
    assert torch.equal(frozen, lora)
    with torch.inference_mode():
        compose_(frozen, base, gain, SCALE)
    assert not torch.equal(frozen, lora)


def by_the_function(lora, base, gain):
    dorajit.fused_dora_compose(lora, base, gain, SCALE)


@pytest.mark.parametrize("write", [through_operator, by_the_function])
@pytest.mark.parametrize("graph", [False, True])
def test_allow_mutation_on_saved_tensors_restores_the_overwritten_tensor(write, graph, device):
    lora, base, gain = operands((4, 8), device)
    before, leaf = lora.clone(), torch.ones_like(lora).requires_grad_()
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        out = leaf * lora
        with torch.set_grad_enabled(graph):
            write(lora, base, gain)
        gradient, = torch.autograd.grad(out.sum(), leaf)
    assert torch.equal(gradient, before) and not torch.equal(lora, before)
