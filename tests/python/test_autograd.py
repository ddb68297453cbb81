"""Gradients of the functions: values, saved tensors, ways to compute them, and backward passes inside modes, tracers,
transforms and subclasses that were not active in the forward pass."""

import functools

import dorajit
import pytest
import reference
import torch
import torch.autograd.forward_ad as forward_ad
from observers import Dispatching
from reference import SCALE, operands
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

NAMES = ["fused_dora_compose_autograd", "class", "compose", "inplace"]


def composed(name, lora, base, gain, scale=SCALE):
    if name == "class":
        return dorajit.FusedDoRAComposeFunction.apply(lora, base, gain, scale)
    if name == "compose":
        return dorajit.fused_dora_compose(lora, base, gain, scale, inplace=False)
    if name == "inplace":
        return dorajit.fused_dora_compose(lora * 1, base, gain, scale)
    return dorajit.fused_dora_compose_autograd(lora, base, gain, scale)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype, gain_dtype", [(torch.float32, torch.float32),
                                               (torch.bfloat16, torch.bfloat16),
                                               (torch.bfloat16, torch.float32)])
def test_training_step_makes_one_launch_forward_and_one_backward(device, launches, name, dtype, gain_dtype):
    lora, base, gain = operands((3, 7, 24), device, dtype, gain_dtype, grad=True)
    out = composed(name, lora, base, gain)
    assert torch.equal(out, reference.compose(lora, base, gain, SCALE))
    assert launches() == {"compose_inner": 1}
    d_out = torch.randn_like(out)
    d_lora, d_base, d_gain = torch.autograd.grad(out, (lora, base, gain), d_out)
    assert launches() == {"backward": 1}
    to_lora, to_base, to_gain = reference.gradients(d_out, reference.inner(lora, base, SCALE), gain, SCALE)
    assert torch.equal(d_lora, to_lora) and torch.equal(d_base, to_base)
    reference.assert_sum_close(d_gain, to_gain, gain_dtype)


def saved_bytes(run):
    total = []
    with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: total.append(tensor.numel() * tensor.element_size()) or tensor,
            lambda tensor: tensor):
        run()
    return sum(total)


def test_inner_is_saved_only_if_the_magnitude_requires_grad(device, launches):
    lora, base, gain = operands((8, 64), device, grad=True)
    size = lora.numel() * 4
    assert saved_bytes(lambda: composed("class", lora, base, gain)) == size + 64 * 4
    frozen = gain.detach()
    launches()
    assert saved_bytes(lambda: composed("class", lora, base, frozen)) == 64 * 4
    assert launches() == {"compose": 1}
    assert saved_bytes(lambda: composed("class", lora.detach(), base.detach(), frozen)) == 0


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_frozen_operands_get_no_gradient(device, launches, frozen):
    tensors = operands((4, 16), device, grad=True)
    for index in frozen:
        tensors[index].requires_grad_(False)
    composed("class", *tensors).backward(torch.ones(4, 16, device=device))
    assert launches()["backward"] == 1
    for index, tensor in enumerate(tensors):
        assert (tensor.grad is None) == (index in frozen)


BIAS = torch.linspace(-2, 2, 6, dtype=torch.float64)
DIFFERENTIABLE = {
    **{name: functools.partial(composed, name, scale=0.7) for name in NAMES},
    "compose_backward": lambda *of: dorajit.compose_backward(*of, 0.7),
    "fused_dora_forward_and_inner": lambda *of: dorajit.fused_dora_forward_and_inner(*of, 0.7),
    "fused_dora_compose_residual": lambda *of: dorajit.fused_dora_compose_residual(*of, 0.7, BIAS.to(of[0].device)),
    "fused_norm_assembly": lambda *of: dorajit.fused_norm_assembly(*(one.abs() + 1 for one in of), 0.7),
    **{f"operator {name}": lambda *of, name=name: getattr(torch.ops.dorajit, name)(*of, 0.7)
       for name in ("compose", "compose_inner")},
    **{f"operator {name} {biased}": lambda *of, name=name, biased=biased: getattr(torch.ops.dorajit, name)(
        *of, BIAS.to(of[0].device) if biased else None, 0.7)
       for name in ("compose_residual", "compose_residual_inner") for biased in (False, True)}}


@pytest.mark.parametrize("name, gain_shape, frozen", [
    *((name, gain_shape, ()) for name in NAMES for gain_shape in ((6,), (1, 6), (4, 1))),
    *((name, (6,), ()) for name in DIFFERENTIABLE if name not in (*NAMES, "fused_norm_assembly")),
    ("fused_norm_assembly", (2, 4, 6), ()), *(("class", (6,), frozen) for frozen in ((1, 2), (0, 2), (0, 1), (1,))),
    *((name, (6,), (frozen,)) for name in DIFFERENTIABLE if "operator" in name for frozen in range(3))])
def test_functions_and_operators_pass_gradcheck_and_gradgradcheck(device, name, gain_shape, frozen):
    tensors = operands((2, 4, 6), device, torch.float64, gain_shape=gain_shape, grad=True)
    for index in frozen:
        tensors[index].requires_grad_(False)
    assert torch.autograd.gradcheck(DIFFERENTIABLE[name], tensors)
    assert torch.autograd.gradgradcheck(DIFFERENTIABLE[name], tensors)


def test_norm_assembly_clamped_square_has_zero_gradient(device):
    terms = [torch.tensor(values, device=device, requires_grad=True)
             for values in ([4.0, 1.0, float("nan")], [0.0, -9.0, 1.0], [0.0, 1.0, 1.0])]
    norm, = dorajit.fused_norm_assembly(*terms, SCALE)
    found = torch.autograd.grad(norm[:2].sum(), terms, create_graph=True)
    for one, factor in zip(found, (1, 2 * SCALE, SCALE * SCALE)):
        torch.testing.assert_close(one[:2].detach(), torch.tensor([factor / 4, 0], device=device))
    second, = torch.autograd.grad(found[0][:2].sum(), terms[0])
    torch.testing.assert_close(second[:2], torch.tensor([-1 / 32, 0], device=device))


@pytest.mark.parametrize("make", [lambda out: out.sum().backward(),
                                  lambda out: out.mT.reshape(-1).square().sum().backward(),
                                  lambda out: out[:, ::2].sum().backward(),
                                  lambda out: out.backward(torch.ones(6, 1).expand(6, 16))])
def test_backward_incoming_gradient_may_have_any_strides(launches, make):
    tensors = operands((6, 16), "cpu", grad=True)
    with dorajit.force_native():
        make(composed("class", *tensors))
    assert launches() == {"compose_inner": 1, "backward": 1}
    lora, base, gain = plain = [tensor.detach().requires_grad_() for tensor in tensors]
    make((gain - 1) * base + gain * (SCALE * lora))
    torch.testing.assert_close([one.grad for one in tensors], [one.grad for one in plain])


def test_compose_in_place_on_leaf_that_requires_grad_raises(device):
    lora, base, gain = operands((4, 8), device, grad=True)
    kept = lora.detach().clone()
    with pytest.raises(RuntimeError, match="`lora` is a leaf"):
        dorajit.fused_dora_compose(lora, base, gain, SCALE)
    assert torch.equal(lora, kept)
    with torch.no_grad():
        assert dorajit.fused_dora_compose(lora, base, gain, SCALE) is lora


def test_compose_in_place_over_saved_tensor_raises_in_backward(device):
    weight = torch.randn(4, 8, device=device, requires_grad=True)
    for differentiable in (True, False):
        lora = weight.exp()  # exp saves its result for backward
        gain = torch.ones(8, device=device, requires_grad=differentiable)
        target = lora if differentiable else lora.detach()
        dorajit.fused_dora_compose(target, torch.randn(4, 8, device=device), gain, SCALE)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            lora.sum().backward()


def under_a_mode(lora, base, gain):
    with FlopCounterMode(display=False):
        dorajit.fused_dora_compose(lora, base, gain, SCALE)


def compiled(lora, base, gain):
    torch._dynamo.reset()
    torch.compile(dorajit.fused_dora_compose, backend="eager")(lora, base, gain, SCALE)


@pytest.mark.parametrize("write", [under_a_mode, compiled])
def test_observed_write_over_saved_tensor_raises_in_backward(write, device):
    lora, base, gain = operands((4, 8), device)
    out = lora.clone().requires_grad_().exp()  # the backward pass of exp needs out
    write(out.detach(), base, gain)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    with torch.inference_mode():
        frozen = lora.clone()
    with pytest.raises(RuntimeError, match="inference tensor"):
        write(frozen, base, gain)
    assert write is compiled or torch.equal(frozen, lora)


def test_selective_checkpoint_detects_a_write(device):
    lora, base, gain = operands((8, 8), device)
    def step(a):
        with torch.no_grad():
            kept = dorajit.fused_dora_compose(a @ a, base, gain, SCALE)
        return (a * kept).sin().sum()
    context = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    with pytest.raises(RuntimeError, match="has been mutated"):
        checkpoint(step, lora.requires_grad_(), use_reentrant=False, context_fn=context).backward()


@pytest.mark.parametrize("graph", [False, True])
def test_allow_mutation_on_saved_tensors_restores_the_overwritten_tensor(graph, device):
    lora, base, gain = operands((4, 8), device)
    before, leaf = lora.clone(), torch.ones_like(lora).requires_grad_()
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        out = leaf * lora
        with torch.set_grad_enabled(graph):
            dorajit.fused_dora_compose(lora, base, gain, SCALE)
        gradient, = torch.autograd.grad(out.sum(), leaf)
    assert torch.equal(gradient, before) and not torch.equal(lora, before)


def test_compose_in_place_on_view_works(device):
    weight, base, gain = operands((4, 8), device, grad=True)
    whole = weight * 1
    view = whole[1:3]
    result = dorajit.fused_dora_compose(view, base[1:3], gain, SCALE)
    assert result is view
    whole.sum().backward()
    expected = torch.ones(4, 8, device=device)
    expected[1:3] = gain.detach() * SCALE
    torch.testing.assert_close(weight.grad, expected)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_compose_in_checkpoint_has_right_gradients(device, use_reentrant):
    tensors = operands((4, 8), device, grad=True)
    checkpoint(lambda *t: composed("inplace", *t), *tensors, use_reentrant=use_reentrant).sum().backward()
    found = [tensor.grad.clone() for tensor in tensors]
    for tensor in tensors:
        tensor.grad = None
    composed("inplace", *tensors).sum().backward()
    assert all(torch.equal(one, tensor.grad) for one, tensor in zip(found, tensors))


def test_compose_under_autocast_does_not_cast_operands(device, launches):
    lora, base, gain = operands((4, 8), device, torch.bfloat16, torch.float32, grad=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        out = composed("class", lora, base, gain)
        out.float().sum().backward()
    assert out.dtype is torch.bfloat16 and gain.grad.dtype is torch.float32
    assert torch.equal(out, reference.compose(lora, base, gain, SCALE))
    assert launches() == {"compose_inner": 1, "backward": 1}


def test_compose_in_inference_mode_launches_one_kernel(device, launches):
    lora, base, gain = operands((4, 8), device, grad=True)
    with torch.inference_mode():
        out = composed("class", lora, base, gain)
        made = torch.randn(4, 8, device=device)
        assert dorajit.fused_dora_compose(made, base, gain, SCALE) is made
    assert out.is_inference() and launches() == {"compose": 2}
    with pytest.raises(RuntimeError, match="`lora` is an inference tensor"), torch.no_grad():
        dorajit.fused_dora_compose(made, base, gain, SCALE)


def test_backward_twice_with_retained_graph_accumulates_gradients(device):
    tensors = operands((4, 8), device, grad=True)
    out = composed("class", *tensors).sum()
    out.backward(retain_graph=True)
    once = [tensor.grad.clone() for tensor in tensors]
    out.backward()
    assert all(torch.equal(tensor.grad, 2 * one) for tensor, one in zip(tensors, once))


def test_gradient_of_base_has_the_type_of_base(device):
    lora, base, gain = operands((4, 8), device, torch.bfloat16, torch.float32)
    tensors = [lora.requires_grad_(), base.float().requires_grad_(), gain.requires_grad_()]
    composed("class", *tensors).sum().backward()
    assert [tensor.grad.dtype for tensor in tensors] == [torch.bfloat16, torch.float32, torch.float32]
    assert torch.equal(tensors[1].grad, (gain.detach() - 1).expand(4, 8))


# --- observed backward passes --------------------------------------------------------------------

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
