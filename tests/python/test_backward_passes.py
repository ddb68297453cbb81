"""Backward passes inside modes, tracers, transforms and subclasses that were not active in the forward pass."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map

import dorajit
from dorajit.layers import dropout
from observers import Dispatching
from reference import SCALE, operands


def eager(lora, base, gain):
    return (gain - 1) * base + gain * (SCALE * lora)


FORMS = {"backward": (lambda *of: dorajit.fused_dora_compose_autograd(*of, SCALE), eager),
         "residual_backward": (lambda *of: dorajit.fused_dora_compose_residual(*of, SCALE),
                               lambda lora, base, gain: base + eager(lora, base, gain))}


@pytest.fixture(params=FORMS)
def graphs(request, device):
    """(name of the backward operator, operands, dorajit's result, eager result)."""
    tensors = operands((4, 8), device, grad=True)
    return request.param, tensors, *(form(*tensors) for form in FORMS[request.param])


def gradients(out, tensors, d_out, **how):
    return torch.autograd.grad(out, tensors, d_out, retain_graph=True, **how)


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_backward_in_forward_mode_propagates_tangents(graphs):
    _, tensors, ours, theirs = graphs
    d_out, tangent = torch.randn_like(ours), torch.randn_like(ours)
    found = []
    for out in (ours, theirs):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(d_out, tangent)
            found.append([forward_ad.unpack_dual(one).tangent for one in gradients(out, tensors, dual)])
    assert_close(*found)


def test_backward_inside_make_fx_is_traced_as_operator(graphs):
    name, tensors, ours, _ = graphs
    graph = make_fx(lambda d_out: gradients(ours, tensors, d_out))(torch.ones_like(ours))
    assert f"dorajit.{name}.default" in [str(node.target) for node in graph.graph.nodes]
    other = torch.randn_like(ours)
    assert_close(graph(other), gradients(ours, tensors, other))


def test_backward_under_dispatch_mode_calls_operator(graphs, launches):
    name, tensors, ours, _ = graphs
    launches()
    with Dispatching() as mode:
        gradients(ours, tensors, torch.ones_like(ours))
    assert f"dorajit.{name}.default" in mode.seen and launches() == {name: 1}


def test_backward_of_fake_gradients_gives_fake_gradients(graphs):
    _, tensors, ours, _ = graphs
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        found = gradients(ours, tensors, mode.from_tensor(torch.ones_like(ours)))
    assert all(isinstance(one, FakeTensor) for one in found)
    assert [one.shape for one in found] == [one.shape for one in tensors]


class Doubled(torch.Tensor):
    """A tensor whose values are twice the elements in its memory."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inside):
        made = torch.Tensor._make_subclass(cls, inside)
        made.inside = inside
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        def meant(one):
            return 2 * one.inside if isinstance(one, cls) else one
        return function(*tree_map(meant, args), **tree_map(meant, kwargs or {}))


def test_backward_of_tensor_subclass_uses_its_dispatch(graphs):
    _, tensors, ours, _ = graphs
    d_out = torch.randn_like(ours)
    assert_close(gradients(ours, tensors, Doubled(d_out)), gradients(ours, tensors, 2 * d_out))


def test_backward_of_torch_function_subclass_gives_plain_gradients(graphs):
    class Named(torch.Tensor):
        pass
    _, tensors, ours, _ = graphs
    d_out = torch.randn_like(ours)
    found = gradients(ours, tensors, d_out.as_subclass(Named))
    assert all(type(one) is torch.Tensor for one in found)
    assert_close(found, gradients(ours, tensors, d_out))


@pytest.mark.parametrize("create_graph", [False, True])
def test_backward_of_batched_gradients_matches_eager(graphs, create_graph):
    _, tensors, ours, theirs = graphs
    many = torch.randn(5, *ours.shape, device=ours.device)
    how = {"is_grads_batched": True, "create_graph": create_graph}
    found, expected = (gradients(out, tensors, many, **how) for out in (ours, theirs))
    assert_close(found, expected)
    if create_graph:
        assert_close(*(gradients(sum(one.square().sum() for one in first), tensors, None)
                       for first in (found, expected)))
    with dorajit.force_native(), pytest.raises(dorajit.FallbackError, match="backward: would run in PyTorch"):
        gradients(ours, tensors, many, **how)


@pytest.mark.parametrize("transform", [
    lambda of, d_out, other: torch.func.jvp(of, (d_out,), (other,))[1],
    lambda of, d_out, other: torch.func.vmap(of)(torch.stack([d_out, other]))])
def test_backward_inside_torch_func_transform_matches_eager(graphs, transform):
    _, tensors, ours, theirs = graphs
    d_out, other = torch.randn_like(ours), torch.randn_like(ours)
    assert_close(*(transform(lambda given, out=out: gradients(out, tensors, given), d_out, other)
                   for out in (ours, theirs)))


def test_sliced_dropout_backward_propagates_tangents(device, monkeypatch):
    monkeypatch.setattr(dropout, "columns_at_once", lambda *of: 64)
    x, weight = torch.randn(4, 16, device=device, requires_grad=True), torch.randn(192, 16, device=device)
    lora = torch.randn(4, 192, device=device, requires_grad=True)
    gain = (1 + torch.randn(192, device=device) / 16).requires_grad_()
    tensors = x, lora, gain
    out = dropout.delta(x, weight, lora, gain, SCALE)
    assert "Sliced" in out.grad_fn.name()
    d_out, tangent, found = torch.randn_like(out), torch.randn_like(out), []
    for one in (out, eager(lora, x @ weight.T, gain)):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(d_out, tangent)
            found.append([forward_ad.unpack_dual(each).tangent for each in gradients(one, tensors, dual)])
    assert_close(*found)
