"""The C++ extension's node of a linear layer has the results of the Python node, to the bit."""

import itertools

import dorajit
import pytest
import torch
import torch.nn.functional as F
from compiled_nodes import node_of, operands_of, assert_same, each_way, error_of, is_compiled, saving, with_parameters
from dorajit import cpp_extension
from dorajit.operations.table import operations
from linear_layers import BF16, F16, F32, F64, MIXES, NAMES, SCALE, operands, ours, trained

SUBSETS = [subset for count in range(1, 5) for subset in itertools.combinations(NAMES, count)]


def is_taken(types):
    """Whether the extension takes the types: factors of a product have one type, and float64 is not mixed."""
    return types[0] is types[1] and (F64 not in types or set(types) == {F64})


@pytest.mark.parametrize("types", MIXES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (5, 24), (2, 3, 24)])
def test_cpp_node_has_the_bits_and_launches_of_the_python_node(device, launches, compiled, alone, types, bias, shape):
    of = operands(device, types, shape, bias=bias)
    d_out = torch.randn((*shape[:-1], 40), device=device).to(types[0])

    def run():
        launches()
        out = ours(of)
        assert is_compiled(out) == (cpp_extension.module is not None and is_taken(types))
        return [out.detach(), *torch.autograd.grad(out, trained(of), d_out), launches()]
    found, expected = each_way(run)
    assert_same(found, expected)
    assert found[-1]


@pytest.mark.parametrize("types, dtype, cast", [
    ((BF16, F32, F32), BF16, (BF16, BF16, F32)), ((F32, F32, F32), F16, (F16, F16, F32)),
    ((F16, BF16, F32), BF16, (BF16, BF16, F32)), ((F64, F64, F64), BF16, (F64, F64, F64)),
    ((F64, F32, F32), BF16, (F64, BF16, F32)), ((F32, F64, F32), BF16, (BF16, F64, F32))])
@pytest.mark.parametrize("bias", [True, False])
def test_cpp_node_under_autocast_matches_python_node(device, launches, compiled, alone, types, dtype, cast, bias):
    of = with_parameters(operands(device, types, (2, 3, 24), bias=bias))

    def run():
        launches()
        kept = []
        with saving(kept), torch.autocast(device, dtype=dtype):
            out = ours(of)
        assert is_compiled(out) == (cpp_extension.module is not None and is_taken(cast))
        return [out.detach(), *torch.autograd.grad(out.float().square().sum(), trained(of)), launches(), *kept]
    assert_same(*each_way(run))


@pytest.mark.parametrize("wanted", [(), *SUBSETS], ids="-".join)
@pytest.mark.parametrize("are_parameters", [False, True])
def test_cpp_node_saves_and_computes_what_python_does(device, launches, compiled, alone, wanted, are_parameters):
    of = operands(device, trained=wanted)
    of = with_parameters(of) if are_parameters else of

    def run():
        launches()
        kept = []
        with saving(kept):
            out = ours(of)
        assert out.requires_grad == bool(wanted)
        gradients = torch.autograd.grad(out.square().sum(), trained(of)) if wanted else ()
        return [out.detach(), *gradients, launches(), *kept]
    found, expected = each_way(run)
    assert_same(found, expected)
    kept = [one.shape for one in found[len(wanted) + 2:]]
    assert kept.count((5, 24)) == ("lora_A" in wanted or len(wanted) > 1)
    assert kept.count((3, 24)) == bool(wanted)


@pytest.mark.parametrize("wanted", SUBSETS, ids="-".join)
def test_cpp_node_second_gradients_match_python_node(device, compiled, python_backward, wanted):
    of = with_parameters(operands(device, (F64, F64, F64), (2, 3, 24), trained=wanted))

    def run():
        first = torch.autograd.grad(ours(of).square().sum(), trained(of), create_graph=True)
        return [*first, *torch.autograd.grad(sum(one.square().sum() for one in first), trained(of))]
    found, expected = each_way(run)
    assert_same([one.detach() for one in found], [one.detach() for one in expected])
    assert python_backward


def test_cpp_node_second_gradients_reach_cast_factors(device, compiled, python_backward):
    of = with_parameters(operands(device, (BF16, F32, F32)))

    def run():
        with torch.autocast(device, dtype=BF16):
            out = ours(of)
        assert is_compiled(out) == (cpp_extension.module is not None)
        first = torch.autograd.grad(out.float().square().sum(), trained(of), create_graph=True)
        return torch.autograd.grad(sum(one.float().square().sum() for one in first), trained(of))
    assert_same(*each_way(run))
    assert python_backward


def test_cpp_node_passes_gradcheck(device, compiled):
    of = operands(device, (F64, F64, F64), (2, 3, 8), out=6, rank=2)
    def function(x, magnitude):  # the norm is a constant and does not depend on these
        return ours({**of, "x": x, "magnitude": magnitude})
    assert is_compiled(function(of["x"], of["magnitude"]))
    assert torch.autograd.gradcheck(function, (of["x"], of["magnitude"]))
    assert torch.autograd.gradgradcheck(function, (of["x"], of["magnitude"]))


@pytest.mark.parametrize("types", [(F32, F32, F32), (BF16, BF16, F32)])
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("shape", [(5, 24), (2, 3, 24)])
def test_cpp_node_without_graph_matches_python(device, launches, compiled, types, context, shape):
    of = operands(device, types, shape, trained=() if context is torch.enable_grad else NAMES)

    def run():
        launches()
        with context():
            out = ours(of)
            counts = launches()
            kept = out.clone()
            assert torch.equal(out.add_(1), kept + 1)
        return [kept, counts, out.requires_grad, out.is_inference(), out._is_view(), out.grad_fn]
    assert_same(*each_way(run))


def test_cpp_node_with_some_gradients_makes_the_same_launches(device, launches, compiled, alone):
    """The forward pass already determines which kernels the backward pass runs."""
    of = operands(device)

    def run():
        out = ours(of)
        seen = []
        out.grad_fn.register_hook(lambda given, _: seen.append([one is None for one in given[:4]]))
        launches()
        torch.autograd.grad(out, of["x"], torch.ones_like(out))
        return [seen, launches()]
    found, expected = each_way(run)
    assert found == expected == [[[False] * 4], {"magnitude_backward": 1}]


def test_cpp_node_accepts_incoming_gradients_of_any_strides(device, compiled):
    of = operands(device, shape=(4, 6, 24))
    for make in (lambda out: out.sum(), lambda out: out.mT.reshape(-1).square().sum(), lambda out: out[..., ::2].sum()):
        assert_same(*each_way(lambda: torch.autograd.grad(make(ours(of)), trained(of))))


@pytest.mark.parametrize("shape", [(1, 40), (40, 1)])
def test_cpp_node_accepts_magnitude_shapes(device, compiled, alone, shape):
    of = operands(device)
    of["magnitude"] = of["magnitude"].detach().reshape(shape).requires_grad_()

    def run():
        out = ours(of)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), trained(of)), is_compiled(out)]
    found, expected = each_way(run)
    assert (found.pop(), expected.pop()) == (True, False)
    assert_same(found, expected)


def test_cpp_node_backward_inside_autocast_matches_python(device, compiled, alone):
    of = operands(device)
    d_out = torch.randn(5, 40, device=device)
    expected = torch.autograd.grad(ours(of), trained(of), d_out)
    out = ours(of)
    with torch.autocast(device, dtype=BF16):
        assert_same(torch.autograd.grad(out, trained(of), d_out), expected)


def test_cpp_node_with_kernels_off_runs_in_pytorch(device, compiled, launches):
    of = operands(device)
    with dorajit.disabled():
        assert not is_compiled(ours(of))
    out = ours(of)
    assert is_compiled(out)
    expected = torch.autograd.grad(out, trained(of), torch.ones_like(out), retain_graph=True)
    launches()
    with dorajit.disabled():
        found = torch.autograd.grad(out, trained(of), torch.ones_like(out))
    assert launches() == {}
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("is_trained", [True, False])
def test_cpp_node_runs_compose_low_rank_on_cpu(device, launches, compiled, bias, is_trained):
    """The kernel also works on a CPU, although layers do not call it there."""
    of = operands(device, (BF16, BF16, F32), bias=bias, trained=NAMES if is_trained else ())
    given = operands_of(of, is_one_launch=True)
    more = node_of(of)
    def run():
        return compiled.linear(*given, *more) if is_trained else compiled.forward(*given, False)[0]
    launches()
    out = run()
    assert launches() == {"compose_low_rank": 1}
    with torch.no_grad():
        low = F.linear(of["x"], of["lora_A"])
        result = F.linear(of["x"], of["weight"], of["bias"])
        made = operations["compose_low_rank"].launch(low, of["lora_B"], result, given[4], of["bias"], result,
                                                     BF16 if is_trained else None, SCALE)
    assert_same([out.detach()], made[:1])
    if is_trained:
        kept = []
        with saving(kept):
            run()
        assert any(torch.equal(one, made[1]) for one in kept)
    of["lora_B"] = of["lora_B"].detach().t().contiguous().t()  # strides that the kernel refuses
    given = operands_of(of, is_one_launch=True)
    assert (compiled.linear(*given, *node_of(of)) if is_trained else compiled.forward(*given, False)) is None
