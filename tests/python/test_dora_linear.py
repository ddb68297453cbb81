"""dorajit.dora_linear: a whole layer as one autograd node."""

import itertools

import dorajit
import pytest
import torch
import torch.nn.functional as F
from dorajit.layers import linear
from linear_layers import (BF16, F16, F32, F64, MIXES, NAMES, SCALE, STEP, assert_near, bound_of, exact, operands,
                           operands_and_seed, ours, saving, step, trained, with_parameters)
from reference import assert_same_output


@pytest.mark.parametrize("types", MIXES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (5, 24), (2, 3, 24), (2, 1, 3, 24)])
def test_dora_linear_output_and_gradients_match_float64(device, types, bias, shape):
    of = operands(device, types, shape, bias=bias)
    out = ours(of)
    assert out.dtype is types[0] and "DoraLinear" in out.grad_fn.name()
    seed = torch.randn(out.shape, device=device).to(types[0])
    found, expected = step(ours, of, seed), step(exact, of, seed)
    assert [one.dtype for one in found[1:]] == [one.dtype for one in trained(of)]
    assert [one.shape for one in found[1:]] == [one.shape for one in trained(of)]
    assert_near(found, expected, bound_of(types))


@pytest.mark.parametrize("types", MIXES)
def test_composed_layer_matches_the_node_whose_inner_has_the_wider_type_of_its_terms(device, types):
    of = operands(device, types, (2, 3, 24))
    seed = torch.randn(2, 3, 40, device=device).to(types[0])
    saved = []
    with saving(saved):
        found = step(ours, of, seed)
    inner, = (one for one in saved if one.shape == seed.shape)
    assert inner.dtype is torch.promote_types(*types[:2])
    given = *(of[name] for name in ("x", "weight", "lora_A", "lora_B", "magnitude")), SCALE, of["bias"]
    expected = step(lambda _: linear._composed(*given), of, seed)
    # Both round once.
    assert_same_output(found[0], expected[0], types[1])
    assert_near(found, expected, bound_of(types))


@pytest.mark.parametrize("wanted", [subset for count in range(5) for subset in itertools.combinations(NAMES, count)],
                         ids="-".join)
@pytest.mark.parametrize("types", [(F32, F32, F32), (BF16, F32, F32)])
def test_dora_linear_saves_and_computes_only_what_gradients_need(device, layer_launches, wanted, types):
    of = operands(device, types, trained=wanted)
    expected = operands(device, types)
    for name, one in of.items():
        expected[name] = one.detach().requires_grad_(name in NAMES)
    layer_launches()
    saved = []
    with saving(saved):
        out = ours(of)
    assert out.requires_grad == bool(wanted)
    kept = [one.shape for one in saved]
    assert kept.count(out.shape) == ("magnitude" in wanted)  # inner
    assert kept.count((5, 3)) == ("lora_B" in wanted)  # S
    assert kept.count(of["x"].shape) == ("lora_A" in wanted or len(wanted) > 1)
    seed = torch.randn(out.shape, device=device).to(out.dtype)
    if wanted:
        out.backward(seed)
        assert layer_launches() == STEP
    else:
        assert layer_launches() == {"norm": 1, "compose_residual": 1}
    ours(expected).backward(seed)
    for name in NAMES:
        assert (of[name].grad is None) == (name not in wanted)
        if name in wanted:
            torch.testing.assert_close(of[name].grad, expected[name].grad)


@pytest.mark.parametrize("name, is_parameter", [
    ("x", False), *itertools.product(("weight", "lora_A", "lora_B"), (False, True))])
def test_saved_operand_written_before_backward_raises(device, name, is_parameter):
    of = operands(device)
    if is_parameter:
        of |= {name: torch.nn.Parameter(of[name].detach(), requires_grad=of[name].requires_grad)}
    out = ours(of)
    with torch.no_grad():
        of[name].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation" if not is_parameter else f"`{name}`, .*"
                       " modified by an inplace operation: it is at version 1, expected is version 0"):
        out.sum().backward()


@pytest.mark.parametrize("wanted, name", [
    (wanted, name) for wanted in (("x",), ("lora_A",), ("lora_B",), ("magnitude",), NAMES[1:])
    for name in ("weight", "lora_A", "lora_B")])
@pytest.mark.parametrize("create_graph", [False, True])
def test_parameter_that_no_gradient_needs_may_be_written_before_backward(device, wanted, name, create_graph):
    of = with_parameters(operands(device, trained=wanted))
    expected = torch.autograd.grad(ours(of).sum(), trained(of))
    out = ours(of)
    with torch.no_grad():
        of[name].add_(1)
    if create_graph or "x" in wanted or (name == "lora_B" and "lora_A" in wanted):
        with pytest.raises(RuntimeError, match=f"`{name}`, which its gradients need, was modified"):
            torch.autograd.grad(out.sum(), trained(of), create_graph=create_graph)
    else:
        assert all(map(torch.equal, torch.autograd.grad(out.sum(), trained(of)), expected))


@pytest.mark.parametrize("name", ["weight", "lora_A", "lora_B"])
def test_parameter_written_before_backward_under_copying_hooks_has_gradients_of_the_copies(device, name):
    of = with_parameters(operands(device))
    expected = torch.autograd.grad(ours(of).sum(), trained(of))
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda one: one):
        out = ours(of)
    with torch.no_grad():
        of[name].add_(1)
    assert all(map(torch.equal, torch.autograd.grad(out.sum(), trained(of)), expected))


@pytest.mark.parametrize("types", MIXES)
def test_norm_and_gain_have_the_bits_of_the_layer(device, launches, types):
    from dorajit.norms import norm
    from dorajit.operations import gain
    of = {name: one if one is None else one.detach() for name, one in operands(device, types).items()}
    of["magnitude"][3] = 0
    of["weight"][5], of["lora_B"][5] = 0, 0
    of["weight"][6] = float("nan")
    weights = of["weight"], of["lora_A"], of["lora_B"]
    norms = dorajit.weight_norm(*weights, SCALE)
    expected = gain.gain(of["magnitude"], norms)
    launches()
    found = norm.divisor_and_gain(*weights, of["magnitude"], SCALE)
    if F64 not in types or set(types) == {F64}:
        assert launches() == {"weight_norm": 1}
    for one, other in zip(found, (gain.divisor(norms, of["magnitude"].dtype), expected)):
        assert one.dtype is other.dtype and torch.equal(one.nan_to_num(7), other.nan_to_num(7))


@pytest.mark.parametrize("what", ["transposed", "rank of 24", "scale of 0"])
def test_dora_linear_without_norm_kernel_matches_float64(device, what):
    of = operands(device, rank=24 if what == "rank of 24" else 3)
    if what == "transposed":
        of["weight"] = of["weight"].t().contiguous().t()
    scale = 0.0 if what == "scale of 0" else SCALE
    out = dorajit.dora_linear(*(of[name] for name in ("x", "weight", "lora_A", "lora_B", "magnitude")), scale,
                              of["bias"])
    if what == "scale of 0":
        gain = of["magnitude"] / of["weight"].norm(dim=1)
        expected = F.linear(of["x"], gain[:, None] * of["weight"], of["bias"])
    else:
        expected = exact(of)
    torch.testing.assert_close(out.double(), expected.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [F32, BF16, F16, F64])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (5, 24), (2, 3, 24)])
@pytest.mark.parametrize("grad", [True, False])
def test_new_adapter_leaves_output_bit_identical(device, dtype, bias, shape, grad):
    of = operands(device, (dtype, dtype, F64 if dtype is F64 else F32), shape, bias=bias)
    with torch.no_grad():
        of["lora_B"].zero_()
        of["magnitude"].copy_(dorajit.weight_norm(of["weight"], of["lora_A"], of["lora_B"], SCALE))
    with torch.set_grad_enabled(grad):
        assert torch.equal(ours(of), F.linear(of["x"], of["weight"], of["bias"]))


def test_rows_with_zero_gain_or_zero_norm_stay_finite(device):
    of = operands(device)
    with torch.no_grad():
        of["magnitude"][2] = 0
        of["weight"][4], of["lora_B"][4] = 0, 0
    out = ours(of)
    out.backward(torch.ones_like(out))
    torch.testing.assert_close(out[:, 2], of["bias"][2].expand(5))
    expected = {name: one if one is None else one.detach().requires_grad_(one.requires_grad)
                for name, one in of.items()}
    exact(expected).sum().backward()
    keep = [i for i in range(40) if i != 4]
    assert_near([of["magnitude"].grad[keep]], [expected["magnitude"].grad[keep]], 1e-5)
    assert of["magnitude"].grad[4] == 0
    assert all(of[name].grad.isfinite().all() for name in NAMES)


@pytest.mark.parametrize("shape", [(5, 24), (2, 3, 24)])
@pytest.mark.parametrize("bias", [True, False])
def test_output_may_be_written_in_place_before_backward(device, shape, bias):
    of = operands(device, shape=shape, bias=bias)
    seed = torch.randn(*shape[:-1], 40, device=device)
    expected = step(ours, of, seed)
    out = ours(of)
    out += 1
    out.mul_(2)
    found = [out.detach() / 2 - 1, *torch.autograd.grad(out, trained(of), seed / 2)]
    assert_near(found, expected, 1e-6)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            out = ours(of)
        if context is torch.no_grad:
            out += 1
            assert_near([out - 1], expected[:1], 1e-6)


@pytest.mark.parametrize("shape", [(0, 24), (2, 0, 24)])
def test_dora_linear_of_no_rows_gives_empty_output(device, shape):
    of = operands(device, shape=shape)
    out = ours(of)
    assert out.shape == (*shape[:-1], 40)
    out.sum().backward()
    for name in NAMES:
        assert of[name].grad.shape == of[name].shape and not of[name].grad.any()


@pytest.mark.parametrize("shape", [(40,), (1, 40), (40, 1)])
def test_dora_linear_accepts_magnitude_shapes(device, shape):
    of, seed = operands_and_seed(device)
    expected = step(ours, of, seed)
    of["magnitude"] = of["magnitude"].detach().reshape(shape).requires_grad_()
    found = step(ours, of, seed)
    assert found[-1].shape == shape
    for one, other in zip(found, expected):
        assert torch.equal(one.flatten(), other.flatten())


def test_dora_linear_accepts_any_strides(device):
    of = operands(device, shape=(4, 5, 24))
    seed = torch.randn(4, 5, 40, device=device)
    expected = step(ours, of, seed)
    for name, turn in (("x", lambda one: one.transpose(0, 1).contiguous().transpose(0, 1)),
                       ("lora_A", lambda one: one.t().contiguous().t()),
                       ("lora_B", lambda one: one.t().contiguous().t()),
                       ("weight", lambda one: one.t().contiguous().t()),
                       ("magnitude", lambda one: one.repeat_interleave(2)[::2])):
        turned = {**of, name: turn(of[name].detach()).requires_grad_(name in NAMES)}
        assert_near(step(ours, turned, seed), expected, 1e-5)
    assert_near(step(ours, of, seed.transpose(0, 1).contiguous().transpose(0, 1)), expected, 1e-6)
    given = ours(of).sum()
    assert_near(torch.autograd.grad(given, trained(of)), step(ours, of, torch.ones_like(seed))[1:], 1e-5)


# --- autocast ------------------------------------------------------------------------------------


@pytest.mark.parametrize("types", [(BF16, F32, F32), (F32, F32, F32), (BF16, BF16, F32)])
@pytest.mark.parametrize("x_dtype", [BF16, F32])
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_dora_linear_under_autocast_matches_float64(device, types, x_dtype, dtype):
    of = operands(device, types, (2, 3, 24))
    of["x"] = of["x"].detach().to(x_dtype).requires_grad_()
    seed = torch.randn(2, 3, 40, device=device).to(dtype)
    with torch.autocast(device, dtype=dtype):
        out = ours(of)
        assert out.dtype is dtype and F.linear(of["x"], of["weight"]).dtype is dtype
        found = [out.detach(), *torch.autograd.grad(out, trained(of), seed)]  # backward inside autocast
    assert [one.dtype for one in found[1:]] == [one.dtype for one in trained(of)]
    with torch.autocast(device, dtype=dtype):
        out = ours(of)
    again = [out.detach(), *torch.autograd.grad(out, trained(of), seed)]
    assert all(map(torch.equal, found, again))
    assert_near(found, step(exact, of, seed), 3e-2)


def test_backward_inside_autocast_uses_the_types_of_forward(device):
    of, seed = operands_and_seed(device)
    expected = step(ours, of, seed)[1:]
    out = ours(of)
    with torch.autocast(device, dtype=BF16):
        found = torch.autograd.grad(out, trained(of), seed)
    assert all(map(torch.equal, found, expected))


def test_autocast_does_not_cast_float64(device):
    of = operands(device, (F64, F64, F64))
    seed = torch.randn(5, 40, dtype=F64, device=device)
    expected = step(ours, of, seed)
    with torch.autocast(device, dtype=BF16):
        assert all(map(torch.equal, step(ours, of, seed), expected))


# --- bad input -----------------------------------------------------------------------------------


def ones(*shape, dtype=F32):
    return lambda one: torch.ones(shape, device=one.device, dtype=dtype)


@pytest.mark.parametrize("name, change, error, words", [
    ("x", ones(5, 23), ValueError, "argument `x` has shape"),
    ("weight", torch.Tensor.to_sparse, TypeError, "`weight` has the layout torch.sparse_coo"),
    *((name, ones(*shape), ValueError, f"`{name}` has shape") for name, shape in (
        ("lora_A", (3, 23)), ("lora_A", ()), ("lora_B", (40, 4)), ("lora_B", (41, 3)), ("magnitude", (41,)),
        ("bias", (1,)), ("bias", (41,)), ("bias", (40, 1)))),
    *((name, lambda one: one.to("meta"), ValueError, f"`{name}` is on meta")
      for name in ("lora_A", "lora_B", "magnitude", "bias")),
    *((name, lambda _: 1.0, TypeError, f"argument `{name}` is a float; (pass|give the layer) a tensor")
      for name in ("bias", "magnitude")),
    *((name, ones(40, dtype=torch.int32), TypeError, f"argument `{name}` has elements of torch.int32")
      for name in ("bias", "magnitude")),
    ("bias", torch.Tensor.double, RuntimeError, "`bias` has elements of torch.float64, but `weight` of torch.float32")])
def test_bad_operands_raise(device, name, change, error, words):
    of = operands(device)
    with pytest.raises(error, match=words):
        ours({**of, name: change(of[name])})


def test_scale_that_is_a_tensor_raises(device):
    of = operands(device)
    given = [of[name] for name in ("x", "weight", "lora_A", "lora_B", "magnitude")]
    with pytest.raises(TypeError, match="dora_linear: argument `scale` is a Tensor"):
        dorajit.dora_linear(*given, torch.tensor(1.0))
    assert torch.equal(dorajit.dora_linear(*given, 1), dorajit.dora_linear(*given, 1.0))


@pytest.mark.parametrize("rows", [5, 3000])  # complete sums, and partial ones
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_gradient_of_magnitude_is_that_of_the_gain_over_the_divisor(device, launches, rows, dtype):
    d_out, inner = (torch.randn(rows, 24, device=device).to(BF16) for _ in range(2))
    gain, divisor = (torch.rand(24, device=device) + 0.5 for _ in range(2))
    wanted, ops = [True, True, True], torch.ops.dorajit
    *expected, d_gain = ops.residual_backward(d_out, inner, gain, SCALE, wanted, BF16, BF16)
    launches()
    *found, d_magnitude = ops.magnitude_backward(d_out, inner, gain, divisor, SCALE, wanted, BF16, BF16, dtype)
    assert launches() == {"magnitude_backward": 1}
    assert torch.equal(d_magnitude, (d_gain / divisor).to(dtype))
    assert all(map(torch.equal, found, expected))
