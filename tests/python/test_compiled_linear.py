"""dorajit.dora_linear under torch.compile: one operator forward and one backward."""

import itertools

import pytest
import torch
from observers import all_equal, compiled
from linear_layers import (BF16, F32, F64, MIXES, NAMES, SCALE, assert_near, exact, operands, operands_and_seed, ours,
                           step, trained)
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("fresh_compiler")
ops = torch.ops.dorajit
FORWARD, BACKWARD = "dora_linear_forward", "dora_linear_backward"
TRAINING = {"forward": [FORWARD], "backward": [BACKWARD]}
S, INNER, GAIN, NORM = range(1, 5)  # outputs of the forward operator


@pytest.mark.parametrize("types", MIXES)
@pytest.mark.parametrize("shape", [(24,), (5, 24), (2, 3, 24)])
@pytest.mark.parametrize("bias", [True, False])
def test_compiled_dora_linear_has_the_bits_of_the_eager_node(device, layer_launches, types, shape, bias):
    of = operands(device, types, shape, bias=bias)
    seed = torch.randn(*shape[:-1], 40, device=device)
    layer_launches()
    expected = step(ours, of, seed)
    launches = layer_launches()
    function, graphs = compiled(ours)
    assert all_equal(step(function, of, seed), expected)
    assert layer_launches() == launches
    assert graphs.operators() == TRAINING


@pytest.mark.parametrize("base", [F32, F64])
def test_compiled_dora_linear_under_autocast_matches_eager(device, base):
    of, seed = operands_and_seed(device, (base, F32, F32))
    function, graphs = compiled(ours)
    with torch.autocast(device, dtype=BF16):
        expected = step(ours, of, seed)
        assert all_equal(step(function, of, seed), expected)
    assert graphs.operators() == TRAINING


def test_autocast_disabled_inside_compiled_function_stays_disabled(device):
    of = operands(device)
    def without_autocast(of):
        with torch.autocast(device, enabled=False):
            return ours(of)
    function, _ = compiled(without_autocast)
    with torch.autocast(device, dtype=BF16):
        assert_near([function(of)], [exact(of)], 3e-6)


def test_dora_linear_operator_ignores_autocast(device):
    of = operands(device, trained=())
    given = [of[name] for name in ("x", "weight", "weight", "lora_A", "lora_B", "magnitude", "bias")]
    expected = ops.dora_linear(*given, SCALE, F32, False)
    with torch.autocast(device, dtype=BF16):
        assert all_equal(ops.dora_linear(*given, SCALE, F32, False), expected)


SUBSETS = [subset for count in range(1, 5) for subset in itertools.combinations(NAMES, count)]


@pytest.mark.parametrize("wanted", SUBSETS, ids="-".join)
@pytest.mark.parametrize("types", [(F32, F32, F32), (BF16, F32, F32)])
def test_compiled_dora_linear_saves_only_needed_outputs(device, wanted, types):
    of, seed = operands_and_seed(device, types, trained=wanted)
    expected = step(ours, of, seed)
    function, graphs = compiled(ours)
    assert all_equal(step(function, of, seed), expected)
    assert graphs.operators() == TRAINING
    assert graphs.saved(FORWARD) == {GAIN, *([S] if "lora_B" in wanted else []),
                                     *([INNER, NORM] if "magnitude" in wanted else [])}


def test_compiled_dora_linear_with_dynamic_shapes_is_compiled_once(device):
    function, graphs = compiled(ours, dynamic=True)
    weights = operands(device)
    for shape in (2, 4, 24), (5, 6, 24), (7, 9, 24):  # sizes that differ from those of the weights
        of = {**weights, "x": torch.randn(shape, device=device, requires_grad=True)}
        seed = torch.randn(*shape[:-1], 40, device=device)
        assert all_equal(step(function, of, seed), step(ours, of, seed))
    assert graphs.operators() == TRAINING


@pytest.mark.parametrize("reentrant", [False, True])
def test_compiled_dora_linear_in_eager_checkpoint_matches_eager(device, reentrant):
    of, seed = operands_and_seed(device)
    function, _ = compiled(ours)
    found = {name: one if one is None else one.detach().clone().requires_grad_(one.requires_grad)
             for name, one in of.items()}
    checkpoint(lambda x: function({**found, "x": x}), found["x"], use_reentrant=reentrant).backward(seed)
    assert all_equal([one.grad for one in trained(found)], step(ours, of, seed)[1:])


@pytest.mark.parametrize("variable", ["PEFT_DORA_FUSED", "PEFT_DORA_FUSED_BACKWARD"])
def test_compiled_dora_linear_obeys_switches(device, switch, variable):
    of, seed = operands_and_seed(device)
    function, graphs = compiled(ours)
    expected = step(function, of, seed)
    switch(variable, "0")
    assert_near(step(function, of, seed), expected, 1e-5)
    assert len(graphs.forward) == 2 and graphs.operators()["forward"].count(FORWARD) == 1


@pytest.mark.parametrize("transform", [
    torch.vmap, lambda function: torch.func.grad(lambda x: function(x).square().sum())], ids=["vmap", "grad"])
def test_compiled_dora_linear_inside_transform_is_composed(device, transform):
    of = operands(device, shape=(3, 5, 24), trained=())
    transformed = transform(lambda x: ours({**of, "x": x}))
    function, graphs = compiled(transformed)
    assert_near([function(of["x"])], [transformed(of["x"])], 1e-5)
    assert FORWARD not in graphs.operators()["inference"]


# --- the operators themselves --------------------------------------------------------------------

def given(of, dtype, keeps_inner):
    return (of["x"], of["weight"], of["weight"], of["lora_A"], of["lora_B"], of["magnitude"], of["bias"], SCALE, dtype,
            keeps_inner)


@pytest.mark.parametrize("types", [(F32, F32, F32), (BF16, F32, F32), (F32, F32, BF16)])
@pytest.mark.parametrize("wanted", [(), ("x",), tuple(NAMES)], ids="-".join)
def test_forward_operator_passes_opcheck(device, types, wanted):
    of = operands(device, types, (2, 3, 24), trained=wanted)
    torch.library.opcheck(ops.dora_linear.default, given(of, types[1], "magnitude" in wanted))


@pytest.mark.parametrize("types", [(F32, F32, F32), (BF16, F32, F32), (F32, F32, BF16)])
@pytest.mark.parametrize("wanted", [(True,) * 4, (True, False, False, False), (False, False, False, True)])
def test_backward_operator_passes_opcheck(device, types, wanted):
    of = operands(device, types, (2, 3, 24), trained=())
    of_x, of_a, of_b, of_magnitude = wanted
    out, low, inner, factor, norms = ops.dora_linear(*given(of, types[1], True))
    torch.library.opcheck(ops.dora_linear_backward.default, (
        torch.randn_like(out), of["x"] if of_a else None, of["weight"], of["lora_A"], of["lora_B"], of["magnitude"],
        low if of_b else None, inner if of_magnitude else None, factor, norms if of_magnitude else None, SCALE,
        types[1], types[0], wanted))


def test_dora_linear_operator_passes_gradcheck(device):
    of = operands(device, (F64, F64, F64), (2, 3, 8), out=6, rank=2)
    def function(x, magnitude):  # the norm is a constant and does not depend on these
        return ops.dora_linear(*given({**of, "x": x, "magnitude": magnitude}, F64, True))[0]
    moved = of["x"], of["magnitude"]
    assert torch.autograd.gradcheck(function, moved) and torch.autograd.gradgradcheck(function, moved)


@pytest.mark.parametrize("types", [(F64, F64, F64), (F32, F64, F32)])
def test_dora_linear_operator_second_gradients_match_the_node(device, types):
    of = operands(device, types)
    def second(function):
        first = torch.autograd.grad(function(of).square().sum(), trained(of), create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), trained(of))
    found = second(lambda of: ops.dora_linear(*given(of, types[1], True))[0])
    assert_near(found, second(ours), 1e-5)


def test_compiled_dora_linear_in_forward_mode_keeps_tangents(device):
    of = operands(device, (F64, F64, F64), trained=())
    tangent = torch.randn_like(of["x"])
    with forward_ad.dual_level():
        x = forward_ad.make_dual(of["x"], tangent)
        found, = forward_ad.unpack_dual(ops.dora_linear(*given({**of, "x": x}, F64, False))[0])[1:]
    assert_near([found], [exact({**of, "x": tangent, "bias": None})], 1e-12)


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_operator_with_trained_weight_or_bias_raises(device, name):
    of = operands(device, trained=[*NAMES, name])
    with pytest.raises(RuntimeError, match=f"`{name}` requires grad"):
        ops.dora_linear(*given(of, F32, True))


def test_operator_without_inner_refuses_gradient_of_magnitude(device):
    with pytest.raises(RuntimeError, match="keeps_inner=True"):
        ops.dora_linear(*given(operands(device), F32, False))


def not_reached(graph, _):
    pytest.fail("tensors that do not go together were compiled")


@pytest.mark.parametrize("name, wrong, words", [
    *((name, torch.ones(shape), f"argument `{name}` has shape") for name, shape in (
        ("x", (5, 23)), ("lora_A", (3, 23)), ("lora_B", (39, 3)), ("magnitude", (39,)), ("bias", (39,)))),
    ("x", torch.ones(5, 24, dtype=BF16), "give both one type"), ("lora_A", torch.ones(3, 24, 1), "linear")])
def test_bad_operands_raise_while_compiling(device, name, wrong, words):
    of = {**operands(device), name: wrong.to(device)}
    with pytest.raises(Exception, match=words):
        torch.compile(ours, backend=not_reached, fullgraph=True)(of)
