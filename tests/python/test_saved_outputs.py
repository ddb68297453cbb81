"""Layers that save their output instead of inner for the gradient of the magnitude (dorajit.set_save_outputs)."""

import dorajit
import pytest
import torch
from dorajit.control import state
from linear_layers import (BF16, F16, F32, F64, NAMES, STEP, assert_near, bound_of, exact, operands, ours, step, trained,
                           with_parameters)
from torch.utils.checkpoint import CheckpointError, checkpoint

MIXES = [(F32, F32, F32), (BF16, BF16, BF16), (BF16, BF16, F32), (F16, F16, F32), (F64, F64, F64)]

@pytest.fixture(autouse=True)
def saving_outputs():
    dorajit.set_save_outputs(True)
    yield
    dorajit.set_save_outputs(False)


class OverwritingSilu(torch.autograd.Function):
    """silu with a backward pass that writes the gradient over its input, and that autograd does not see: as fused
    kernels of gated activations do."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.silu(x)

    @staticmethod
    def backward(ctx, d_out):
        x, = ctx.saved_tensors
        gate = torch.sigmoid(x)
        x.data.copy_(d_out * gate * (1 + x * (1 - gate)))
        return x


def saved_matrices(of):
    """For each saved matrix of the output's shape whether it is the output."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        out = ours(of)
    return [one.data_ptr() == out.data_ptr() for one in kept if one.shape == out.shape]


def expected_of(function, of, seed):
    """The step without saved outputs."""
    dorajit.set_save_outputs(False)
    found = step(function, of, seed)
    dorajit.set_save_outputs(True)
    return found


@pytest.mark.parametrize("types", MIXES)
@pytest.mark.parametrize("shape", [(24,), (5, 24), (2, 3, 24)])
def test_gradients_from_the_output_match_float64(device, layer_launches, types, shape):
    of = operands(device, types, shape, bias=False)
    seed = torch.randn(*shape[:-1], 40, device=device).to(types[0])
    found = step(ours, of, seed)
    assert layer_launches() == STEP
    assert_near(found, step(exact, of, seed.double()), bound_of(types))


def test_layer_with_more_outputs_than_inputs_saves_its_output(device):
    assert saved_matrices(operands(device, bias=False)) == [True]


@pytest.mark.parametrize("change", [
    {"bias": True}, {"out": 20}, {"trained": ("magnitude",)}, {"types": (BF16, F32, F32)}, {"types": (F16, F16, F16)}], ids=str)
def test_other_layers_save_inner(device, change):
    assert saved_matrices(operands(device, **{"bias": False, **change})) == [False]


@pytest.mark.parametrize("written", ["mul_", "view", "no_grad", "relu_"])
@pytest.mark.parametrize("kept", [True, False])
def test_output_may_be_written_by_pytorch(device, written, kept):
    of = operands(device, bias=False)
    seed = torch.randn(5, 40, device=device)

    def function(of):
        out = ours(of)
        if written == "mul_":
            out.mul_(2)
        elif written == "view":
            out.view(-1)[::2].add_(1)
        elif written == "no_grad":
            with torch.no_grad():
                out.fill_(3)
        else:
            torch.relu_(out)
        return out
    expected = expected_of(function, of, seed)
    if kept:
        assert_near(step(function, of, seed), expected, 1e-6)
    else:
        out = checkpoint(function, of, use_reentrant=False)
        assert_near([out.detach(), *torch.autograd.grad(out, trained(of), seed)], expected, 1e-6)


def test_written_output_under_compiled_autograd(device):
    """Traced tensors have other version counters."""
    of = operands(device, bias=False)
    seed = torch.randn(5, 40, device=device)
    expected = expected_of(ours, of, seed)
    for is_written in False, True, True, False:
        out = ours(of)
        if is_written:
            out.mul_(2)
        for one in trained(of):
            one.grad = None
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
            out.backward(seed / 2 if is_written else seed)
        assert_near([one.grad for one in trained(of)], expected[1:], 1e-5)


def test_batched_gradients(device):
    of = operands(device, bias=False)
    seeds = torch.randn(3, 5, 40, device=device)
    found = torch.autograd.grad(ours(of), trained(of), seeds, is_grads_batched=True)
    expected = [expected_of(ours, of, seed)[1:] for seed in seeds]
    assert_near(found, [torch.stack(one) for one in zip(*expected)], 1e-5)


def test_second_backward_pass_after_the_output_was_overwritten(device):
    of = operands(device, bias=False)
    seed = torch.randn(5, 40, device=device)
    expected = expected_of(ours, of, seed)
    out = ours(of)
    overwritten, plain = (OverwritingSilu.apply(out) * seed).sum(), (out * seed).sum()
    torch.autograd.grad(overwritten, trained(of), retain_graph=True)
    assert_near(torch.autograd.grad(plain, trained(of)), expected[1:], 1e-5)


def test_switch_that_differs_in_the_second_run_of_a_checkpoint_raises(device):
    of = operands(device, bias=False)
    for first in True, False:
        dorajit.set_save_outputs(first)
        out = checkpoint(lambda x: ours({**of, "x": x}), of["x"], use_reentrant=False)
        dorajit.set_save_outputs(not first)
        with pytest.raises(CheckpointError):
            out.sum().backward()


@pytest.mark.parametrize("shape", [(5, 24), (2, 3, 24)])
def test_gradient_written_over_the_output_unseen_by_autograd(device, shape):
    of = operands(device, shape=shape, bias=False)
    seed = torch.randn(*shape[:-1], 40, device=device)
    found = step(lambda of: OverwritingSilu.apply(ours(of)), of, seed)
    assert_near(found, expected_of(lambda of: torch.nn.functional.silu(ours(of)), of, seed), 1e-6)


def test_weight_written_before_inner_is_computed_again_raises(device):
    of = with_parameters(operands(device, bias=False, trained=("lora_B", "magnitude")))
    out = ours(of)
    out.mul_(2)
    with torch.no_grad():
        of["weight"].add_(1)
    with pytest.raises(RuntimeError, match="`weight`, which its gradients need, was modified"):
        out.sum().backward()


def test_magnitude_written_before_backward_is_not_used(device):
    of = with_parameters(operands(device, bias=False))
    seed = torch.randn(5, 40, device=device)
    expected = expected_of(ours, of, seed)
    out = ours(of)
    with torch.no_grad():
        of["magnitude"].mul_(3)
    assert_near(torch.autograd.grad(out, trained(of), seed), expected[1:], 1e-5)


@pytest.mark.parametrize("types", [(F32, F32, F32), (BF16, BF16, BF16), (F64, F64, F64)])
def test_magnitude_of_zero_has_a_gradient_of_zero(device, types):
    of = operands(device, types, bias=False)
    seed = torch.randn(5, 40, device=device).to(types[0])
    with torch.no_grad():
        of["magnitude"][4] = 0
    found = step(ours, of, seed)
    expected = expected_of(ours, of, seed)
    assert all(one.isfinite().all() for one in found)
    assert found[-1][4] == 0
    expected[-1][4] = 0
    assert_near(found, expected, bound_of(types))


def test_negative_magnitudes(device):
    of = operands(device, bias=False)
    with torch.no_grad():
        of["magnitude"].neg_()
    seed = torch.randn(5, 40, device=device)
    assert_near(step(ours, of, seed), expected_of(ours, of, seed), 1e-5)


@pytest.mark.parametrize("wanted", [("magnitude",), ("lora_A", "magnitude"), NAMES], ids="-".join)
def test_only_wanted_gradients_are_computed(device, wanted):
    of = operands(device, bias=False, trained=wanted)
    seed = torch.randn(5, 40, device=device)
    assert_near(step(ours, of, seed), expected_of(ours, of, seed), 1e-5)


def test_second_order_gradients(device):
    of = operands(device, (F64, F64, F64), (2, 8), out=12, bias=False)
    # Finite differences of A and B would change the norm, which is a constant for autograd.
    assert torch.autograd.gradgradcheck(lambda x, magnitude: ours({**of, "x": x, "magnitude": magnitude}),
                                        (of["x"], of["magnitude"]))
    seed = torch.randn(2, 12, dtype=F64, device=device, requires_grad=True)

    def second(of):
        first = torch.autograd.grad(ours(of), trained(of), seed, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), [*trained(of), seed])
    found = second(of)
    dorajit.set_save_outputs(False)
    assert_near(found, second(of), 1e-12)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_layer(device, layer_launches, reentrant):
    of = operands(device, bias=False)
    seed = torch.randn(5, 40, device=device)
    expected = step(ours, of, seed)
    out = checkpoint(lambda x: ours({**of, "x": x}), of["x"], use_reentrant=reentrant)
    out.backward(seed)
    assert all(map(torch.equal, [one.grad for one in trained(of)], expected[1:]))


def test_node_under_copying_hooks_does_not_keep_the_output_alive(device):
    def uses():
        with torch.autograd.graph.saved_tensors_hooks(lambda one: one.clone(), lambda one: one):
            out = ours(operands(device, bias=False))
        return torch._C._storage_Use_Count(out.untyped_storage()._cdata)
    found = uses()
    dorajit.set_save_outputs(False)
    assert found == uses()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("is_written", [False, True])
def test_compiled_layer_saves_inner(device, is_written):
    of = operands(device, bias=False)
    seed = torch.randn(5, 40, device=device)

    def function(of):
        out = ours(of)
        return out.mul_(2) if is_written else out
    found = step(torch.compile(function, fullgraph=True, backend="aot_eager"), of, seed)
    assert_near(found, expected_of(function, of, seed), 1e-6)


def test_environment_switches_it(monkeypatch):
    for value, expected in ("1", True), ("0", False):
        monkeypatch.setenv("DORAJIT_SAVE_OUTPUTS", value)
        dorajit.invalidate_environment()
        assert state.saves_outputs is expected
    monkeypatch.delenv("DORAJIT_SAVE_OUTPUTS")
    dorajit.invalidate_environment()
    assert not state.saves_outputs


def test_argument_that_is_no_bool_raises():
    with pytest.raises(TypeError, match="give True or False"):
        dorajit.set_save_outputs("1")
