"""Which way a call runs: its results in PyTorch, the explanations of explain_dispatch, and each possible observer."""

import re

import dorajit
import processes
import pytest
import reference
import torch
from dorajit import testing
from dorajit.operations import eligibility
from dorajit.operations.table import operations
from observers import Dispatching
from reference import SCALE, operands
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode


def transposed(device):
    lora, base, gain = operands((32, 6), device, gain_shape=(6,))
    return lora.T, base.T, torch.ones(32, device=device)


def doubled_columns(device):
    lora, base, gain = operands((6, 64), device, gain_shape=(32,))
    return lora[:, ::2], base[:, ::2], gain


def shape_of_its_own(device):
    return operands((2, 3, 8), device, gain_shape=(2, 1, 8))


def mixed_doubles(device):
    lora, base, gain = operands((4, 8), device)
    return lora, base.double(), gain.double()


def eight_bits(device):
    lora, base, gain = operands((4, 8), device)
    return lora, base.to(torch.float8_e4m3fn), gain


def negated(device):
    lora, base, gain = operands((4, 8), device)
    return lora, torch._neg_view(base), gain


def many_dimensions(device):
    return operands((1,) * 16 + (2, 4), device, gain_shape=(4,))


IN_PYTORCH = {doubled_columns: "`lora` has strides", shape_of_its_own: "more than one dimension",
              mixed_doubles: "float64 operands are mixed", eight_bits: "float8",
              negated: "negation", many_dimensions: "more than 16 dimensions"}


@pytest.mark.parametrize("make", IN_PYTORCH, ids=lambda make: make.__name__)
def test_tensors_without_kernel_run_in_pytorch(device, launches, make):
    lora, base, gain = make(device)
    answer = dorajit.explain_dispatch(lora, base, gain)
    assert answer.path == "torch" and IN_PYTORCH[make] in answer.reason
    expected = reference.compose(lora, base, gain, SCALE)
    assert torch.equal(dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False), expected)
    out, inner = dorajit.fused_dora_forward_and_inner(lora, base, gain, SCALE)
    assert torch.equal(out, expected)
    assert torch.equal(inner, reference.inner(lora, base, SCALE))
    assert launches() == {}
    with dorajit.force_native(), pytest.raises(dorajit.FallbackError) as caught:
        dorajit.fused_dora_compose(lora, base, gain, SCALE)
    assert answer.reason in str(caught.value)
    assert torch.equal(dorajit.fused_dora_compose(lora, base, gain, SCALE), expected)


def test_transposed_operands_run_natively_in_memory_order(device, launches):
    lora, base, gain = transposed(device)
    for operation in ("compose", "compose_residual"):
        assert dorajit.explain_dispatch(lora, base, gain, operation).path == "native"
    out = dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False)
    assert torch.equal(out, reference.compose(lora, base, gain, SCALE))
    assert launches() == {"compose": 1}


@pytest.mark.parametrize("make", [doubled_columns, shape_of_its_own, mixed_doubles], ids=lambda make: make.__name__)
def test_gradients_of_tensors_without_kernel_match_expression(device, make):
    tensors = [tensor.detach().requires_grad_() for tensor in make(device)]
    found = torch.autograd.grad(dorajit.fused_dora_compose_autograd(*tensors, SCALE).square().sum(), tensors)
    lora, base, gain = (tensor.double() for tensor in tensors)
    exact = torch.autograd.grad(((gain - 1) * base + gain * (SCALE * lora)).square().sum(), tensors)
    torch.testing.assert_close(found, exact)


def test_backward_of_strided_tensors_runs_on_copies_or_views(device, launches):
    d_out, inner, gain = operands((6, 64), device, gain_shape=(32,))
    d_out, inner = d_out[:, ::2], inner[:, ::2]
    for operation in ("backward", "residual_backward"):
        assert "compact copies" in dorajit.explain_dispatch(d_out, inner, gain, operation).reason
    with dorajit.force_native():
        d_lora, d_base, _ = dorajit.compose_backward(d_out, inner, gain, SCALE)
    to_lora, to_base, _ = reference.gradients(d_out, inner, gain, SCALE)
    assert torch.equal(d_lora, to_lora) and torch.equal(d_base, to_base)
    assert launches() == {"backward": 1}


def test_norm_assembly_without_kernel_runs_in_pytorch(device):
    terms = [torch.rand(20, device=device)[::2] for _ in range(3)]
    answer = dorajit.explain_dispatch(*terms, operation="norm_assembly")
    assert answer.path == "torch" and "contiguous" in answer.reason
    assert torch.equal(dorajit.fused_norm_assembly(*terms, SCALE)[0], reference.norm(*terms, SCALE))


def test_explain_dispatch_names_active_transforms_and_switches(device):
    tensors = operands((4, 8), device)
    assert dorajit.explain_dispatch(*tensors) == ("native", "a kernel takes the tensors as they are")
    with dorajit.disabled():
        assert "switched off" in dorajit.explain_dispatch(*tensors).reason
    reasons = []
    torch.func.grad(lambda lora: reasons.append(dorajit.explain_dispatch(lora, *tensors[1:])) or lora.sum())(tensors[0])
    assert reasons[0].path == "torch" and "torch.func" in reasons[0].reason
    for operation in ("add", []):
        with pytest.raises(ValueError, match=re.escape(f"argument `operation` is {operation!r}")):
            dorajit.explain_dispatch(*tensors, operation=operation)


def test_random_layouts_run_as_explain_dispatch_says(launches):
    """For random types, shapes and strides: values match the expression, and the path is the explained one."""
    generator = torch.Generator().manual_seed(7)
    def pick(*choices):
        return choices[int(torch.randint(len(choices), (), generator=generator))]
    def tensor(shape, dtype):
        grown = [size * pick(1, 1, 1, 2) for size in shape]
        order = torch.randperm(len(shape), generator=generator).tolist() if pick(0, 0, 1) else None
        made = torch.randn(grown, generator=generator).to(dtype)
        if order:
            inverse = [order.index(dim) for dim in range(len(order))]
            made = made.permute(order).contiguous().permute(inverse)
        return made[tuple(slice(None, None, big // size) if pick(0, 1) else slice(0, size)
                          for big, size in zip(grown, shape))][tuple(slice(0, s) for s in shape)]
    paths = []
    for _ in range(400):
        shape = [pick(1, 2, 3, 8) for _ in range(pick(1, 2, 2, 3, 4))]
        gain_shape = [size if pick(0, 1) else 1 for size in shape][pick(0, 0, 1):] or [1]
        lora, base, gain = (tensor(one, pick(torch.float32, torch.float32, torch.bfloat16,
                                             torch.float64)) for one in (shape, shape, gain_shape))
        answer = dorajit.explain_dispatch(lora, base, gain)
        launches()
        out = dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False)
        assert launches() == ({"compose": 1} if answer.path == "native" else {}), answer
        assert torch.equal(out, reference.compose(lora, base, gain, SCALE)), answer
        _, inner = dorajit.fused_dora_forward_and_inner(lora, base, gain, SCALE)
        answer = dorajit.explain_dispatch(lora, inner, gain, "backward")
        launches()
        d_lora, d_base, d_gain = dorajit.compose_backward(lora, inner, gain, SCALE)
        assert launches() == ({"backward": 1} if answer.path == "native" else {}), answer
        to_lora, to_base, to_gain = reference.gradients(lora, inner, gain, SCALE)
        assert torch.equal(d_lora, to_lora) and torch.equal(d_base, to_base)
        reference.assert_sum_close(d_gain, to_gain, gain.dtype)
        paths.append(answer.path)
    assert {"native", "torch"} == set(paths)


def test_dtensors_run_in_pytorch(tmp_path):
    program = f"""
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
plain = lora, base, gain
spread = [distribute_tensor(one, mesh, [Shard(0) if one.dim() > 1 else Replicate()]) for one in plain]
for function in (lambda a, b, g: dorajit.fused_dora_compose(a, b, g, 0.5, inplace=False),
                 lambda a, b, g: dorajit.fused_dora_forward_and_inner(a, b, g, 0.5)[1],
                 lambda a, b, g: dorajit.fused_dora_compose_residual(a, b, g, 0.5),
                 lambda a, b, g: dorajit.compose_backward(a, b, g, 0.5)[0],
                 lambda a, b, g: dorajit.fused_norm_assembly(g, g, g, 0.5)[0]):
    torch.testing.assert_close(function(*spread).full_tensor(), function(*plain))
print(dorajit.explain_dispatch(*spread))
dist.destroy_process_group()
"""
    assert "an operand is a DTensor" in processes.run(program)


def test_norm_assembly_of_scalars_runs_natively(device, launches):
    terms = [torch.tensor(value, device=device) for value in (1.0, 0.5, 2.0)]
    assert dorajit.explain_dispatch(*terms, operation="norm_assembly").path == "native"
    norm, = dorajit.fused_norm_assembly(*terms, SCALE)
    assert launches() == {"norm_assembly": 1}
    assert norm.shape == () and torch.equal(norm[None], reference.norm(*(one[None] for one in terms), SCALE))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("call", [
    lambda one, gain: dorajit.fused_dora_compose(one, one, gain, SCALE, False),
    lambda one, gain: dorajit.fused_dora_compose(one, one, gain, SCALE),
    lambda one, gain: dorajit.fused_dora_forward_and_inner(one, one, gain, SCALE),
    lambda one, gain: dorajit.fused_dora_compose_residual(one, one, gain, SCALE),
    lambda one, gain: dorajit.compose_backward(one, one, gain, SCALE),
    lambda one, gain: dorajit.fused_norm_assembly(one, one, one, SCALE),
    lambda one, gain: dorajit.explain_dispatch(one, one, gain)])
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_raise(call, layout):
    nested = torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(3, 8)], layout=layout)
    with pytest.raises(TypeError, match="is a nested tensor; pass a dense tensor"):
        call(nested, torch.randn(8))


# --- observers ------------------------------------------------------------------------------------

class Own(torch.Tensor):
    pass


class Overriding(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def inside(mode):
    def observe(ask, lora):
        with mode():
            ask(lora)
    return observe


def in_a_graph(ask, lora):
    ask(lora.clone().requires_grad_())


def traced(ask, lora):
    make_fx(lambda one: ask(one) + one)(lora)


def traced_by_jit(ask, lora):
    torch.jit.trace(lambda one: ask(one) + one, lora, check_trace=False)


def compiled(ask, lora):
    torch._dynamo.reset()
    torch.compile(ask, backend="eager")(lora)


def forward_mode(ask, lora):
    with torch.autograd.forward_ad.dual_level():
        ask(torch.autograd.forward_ad.make_dual(lora, lora))


def forward_mode_of_others(ask, lora):
    with torch.autograd.forward_ad.dual_level():
        ask(lora)


OPERATOR, EXPRESSION = "operator", "expression"
OBSERVED = {
    "plain": (lambda ask, lora: ask(lora), eligibility.NOBODY),
    "grad": (in_a_graph, eligibility.AUTOGRAD),
    "function mode": (inside(Overriding), eligibility.NOBODY),
    "dispatch mode": (inside(Dispatching), OPERATOR),
    "make_fx": (traced, OPERATOR),
    "jit trace": (traced_by_jit, EXPRESSION),
    "compile": (compiled, OPERATOR),
    "forward mode of others": (forward_mode_of_others, EXPRESSION),
    "subclass": (lambda ask, lora: ask(lora.as_subclass(Own)), OPERATOR),
    "forward mode": (forward_mode, EXPRESSION),
    "vmap": (lambda ask, lora: torch.vmap(lambda one: ask(one) + one)(lora[None]), EXPRESSION),
    "func.grad": (lambda ask, lora: torch.func.grad(lambda one: (ask(one) + one).sum())(lora), EXPRESSION),
    "jvp": (lambda ask, lora: torch.func.jvp(lambda one: ask(one) + one, (lora,), (lora,)), EXPRESSION),
}


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("observe, expected", OBSERVED.values(), ids=OBSERVED)
def test_way_of_a_call_follows_from_the_observer(observe, expected):
    lora, base, gain = operands((4, 6), "cpu")
    found = []

    def ask(one):
        seen = eligibility.SOMEBODY
        if not torch.compiler.is_compiling():
            seen = eligibility.who_sees(one, base, gain, SCALE)
            made = operations["compose"].at_once(one, base, gain, True, SCALE)
            assert (type(made) is not int) == (seen == eligibility.NOBODY)
        if seen == eligibility.SOMEBODY:
            seen = OPERATOR if eligibility.why_expression(one, base, gain) is None else EXPRESSION
        found.append(seen)
        return one
    observe(ask, lora)
    assert found == [expected]


def test_scale_that_is_no_float_is_not_launched_at_once():
    assert eligibility.who_sees(*operands((4, 6), "cpu"), 1) == eligibility.SOMEBODY
    assert testing.launch_counts().keys() >= {"compose", "backward"}


def test_call_at_once_in_place_increments_the_version():
    lora, base, gain = operands((4, 6), "cpu")
    at_once = operations["compose"].at_once
    expected = dorajit.fused_dora_compose(lora, base, gain, SCALE, False)
    before = lora._version
    assert at_once(lora, base, gain, lora, SCALE) is lora
    assert lora._version == before + 1 and lora.equal(expected)
    with torch.inference_mode():
        frozen = expected.clone()
        assert at_once(frozen, base, gain, frozen, SCALE) is frozen
    kept = frozen.clone()
    assert at_once(frozen, base, gain, frozen, SCALE) == eligibility.NOBODY and frozen.equal(kept)


def test_call_at_once_without_kernel_does_nothing():
    lora, base, gain = operands((4, 6), "cpu")
    at_once, counted = operations["compose"].at_once, testing.launch_counts()
    for given in ((lora.int(), base, gain), (lora, base[:2], gain), (lora, base, None)):
        assert type(at_once(*given, True, SCALE)) is int
    with pytest.raises(dorajit.Error, match="different shapes"):
        operations["compose"].launch(lora, base[:2], gain, True, SCALE)
    assert testing.launch_counts() == counted


def test_output_passed_as_true_has_the_type_of_its_model():
    lora, base, gain = operands((4, 6), "cpu")
    d_lora, d_base, d_gain = operations["backward"].launch(lora.double(), None, gain.double(), True, False, False,
                                                           SCALE)
    assert d_lora.dtype is torch.float64 and d_base is None and d_gain is None
    out, inner = operations["compose_inner"].launch(lora.bfloat16(), base, gain, True, torch.float32, SCALE)
    assert (out.dtype, inner.dtype) == (torch.bfloat16, torch.float32)
