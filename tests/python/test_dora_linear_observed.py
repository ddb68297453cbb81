"""dorajit.dora_linear under checkpoints, modes and transforms; second-order gradients; small changes of magnitudes."""

import copy
import itertools

import dorajit
import pytest
import torch
from linear_layers import (BF16, F16, F32, F64, MIXES, NAMES, SCALE, assert_near, exact, operands, operands_and_seed,
                           ours, step, trained, with_norm, with_parameters)
from observers import Dispatching
from torch.utils.checkpoint import checkpoint


@pytest.mark.parametrize("are_parameters", [False, True])
def test_checkpoint_is_not_passed_parameters(device, monkeypatch, are_parameters):
    of = operands(device)
    of = with_parameters(of) if are_parameters else of
    passed = []

    class Holder(torch.utils.checkpoint._Holder):
        def __init__(self):
            passed.append(self)
    monkeypatch.setattr(torch.utils.checkpoint, "_Holder", Holder)
    checkpoint(lambda x: ours({**of, "x": x}), of["x"], use_reentrant=False)
    assert len(passed) == (5 if are_parameters else 8)  # x, S, inner, gain and divisor; weight, A and B


@pytest.mark.parametrize("trained_one, is_node", [("weight", False), ("bias", True)])
def test_trained_weight_or_bias_has_its_gradient(device, trained_one, is_node):
    of = operands(device, trained=[*NAMES, trained_one])
    out = ours(of)
    assert ("DoraLinear" in out.grad_fn.name()) == is_node
    seed = torch.randn(5, 40, device=device)
    assert_near(step(ours, of, seed), step(exact, of, seed), 1e-5)


def second(function, of):
    """Gradients of a function of the gradients."""
    first = torch.autograd.grad(function(of).square().sum(), trained(of), create_graph=True)
    return torch.autograd.grad(sum(one.square().sum() for one in first), trained(of))


@pytest.mark.parametrize("wanted", [NAMES, *itertools.combinations(NAMES, 3), *itertools.combinations(NAMES, 2)],
                         ids="-".join)
def test_second_gradients_match_float64(device, wanted):
    of = operands(device, (F64, F64, F64), (2, 3, 8), out=6, rank=2, trained=wanted)
    norm = dorajit.weight_norm(of["weight"], of["lora_A"], of["lora_B"], SCALE)
    assert_near(second(ours, of), second(lambda of: with_norm(of, norm), of), 1e-12)


def test_second_gradients_under_autocast_match_float64(device):
    of = operands(device, (BF16, F32, F32))
    norm = dorajit.weight_norm(of["weight"], of["lora_A"], of["lora_B"], SCALE).double()
    with torch.autocast(device, dtype=BF16):
        found = second(lambda of: ours(of).float(), of)
    wide = {name: one.detach().double().requires_grad_(one.requires_grad) for name, one in of.items()}
    assert_near(found, second(lambda of: with_norm(of, norm), wide), 5e-2)


def test_batched_gradients_match_single_ones(device):
    of = operands(device)
    many = torch.randn(4, 5, 40, device=device)
    def batched(function):
        return torch.autograd.grad(function(of), trained(of), many, is_grads_batched=True)
    assert_near(batched(ours), batched(exact), 1e-5)


def test_torch_func_transforms_match_float64(device):
    of = operands(device, trained=())
    def loss(function):
        return lambda x, a, b, m: function({**of, "x": x, "lora_A": a, "lora_B": b, "magnitude": m}).square().sum()
    given = [of[name] for name in NAMES]
    found, expected = (torch.func.grad(loss(function), argnums=(0, 1, 2, 3))(*given) for function in (ours, exact))
    assert_near(found, expected, 1e-5)
    many = torch.randn(3, 5, 24, device=device)
    found = torch.vmap(lambda x: ours({**of, "x": x}))(many)
    assert_near([found], [exact({**of, "x": many})], 1e-5)


def test_dispatch_modes_see_operators(device):
    of = operands(device)
    out = ours(of)
    with Dispatching() as mode:
        assert_near([ours(of).detach()], [out.detach()], 1e-6)
        assert {"dorajit.row_norms.default", "dorajit.compose_residual_inner.default"} <= set(mode.seen)
        out.sum().backward()  # the graph was built outside of the mode
    assert "dorajit.magnitude_backward.default" in mode.seen


@pytest.mark.parametrize("factors", [F32, BF16])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_dora_linear_of_meta_tensors_gives_shapes(fresh_compiler, is_compiled, factors):
    of = operands("meta", (BF16, factors, F32))
    function = torch.compile(ours, fullgraph=True, backend="aot_eager") if is_compiled else ours
    out, *gradients = step(function, of, torch.empty(5, 40, device="meta"))
    assert out.is_meta and out.shape == (5, 40) and out.dtype is BF16
    assert [(one.shape, one.dtype) for one in gradients] == [(one.shape, one.dtype) for one in trained(of)]


def test_backward_pass_under_compiled_autograd_is_one_graph(device, fresh_compiler):
    of, seed = operands_and_seed(device)
    expected = step(ours, of, seed)
    copies = {name: copy.deepcopy(one) for name, one in of.items()}
    out = ours(copies)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        out.backward(seed)
    assert_near([copies[name].grad for name in NAMES], expected[1:], 1e-6)


def test_norm_is_launched_once_for_a_strided_bias(device, layer_launches):
    of = operands(device)
    expected = ours(of)
    layer_launches()
    assert torch.equal(ours({**of, "bias": of["bias"].repeat_interleave(2)[::2]}), expected)
    assert layer_launches()["norm"] == 1


@pytest.mark.parametrize("types", [one for one in MIXES if one[2] is not BF16])  # bfloat16 has no number so near to 1
@pytest.mark.parametrize("deviation", [0.0005, 0.0015, -0.0015])
@pytest.mark.parametrize("way", ["node", "composed", "compiled"])
def test_small_change_of_magnitude_survives_rounding_of_the_output(device, types, deviation, way):
    """A gain of 1 + d changes the output by a share of d, although rounding to 16 bits is coarser than that."""
    torch.manual_seed(5)
    of = operands(device, types, (8192, 24), out=48, rank=8, bias=False, trained=())
    norm = dorajit.weight_norm(of["weight"], of["lora_A"], of["lora_B"], SCALE)
    function = dorajit.dora_linear
    if way == "compiled":
        torch._dynamo.reset()
        function = torch.compile(function, backend="aot_eager")
    def out(gain):
        given = *(of[name] for name in ("x", "weight", "lora_A", "lora_B")), (norm * gain).to(types[2]), SCALE
        if way == "composed":
            return dorajit.layers.linear._composed(*given, None).double()
        return function(*given).double()
    of["magnitude"] = norm
    ideal = exact(of)
    share = ((out(1 + deviation) - out(1)) * ideal).sum() / ideal.square().sum() / deviation
    # If the low-rank result is rounded to 16 bits, its rounding steps are as large as the effect.
    is_rounded = types[1] in (BF16, F16) and (way == "composed" or device == "cpu")
    assert 0.98 < share.item() < (1.2 if is_rounded else 1.02)
