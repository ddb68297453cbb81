"""The operations over products of low rank that are never in memory: weight_norm, the norms of the rows of W + s B A, and
compose_low_rank, the composition."""

import dorajit
import pytest
import torch
from dorajit import errors
from dorajit.control import force_native
from dorajit.operations import run
from dorajit.operations.table import operations
from reference import exact_norm, needs_gpu

WEIGHT_NORM, LOW_RANK = operations["weight_norm"], operations["compose_low_rank"]
SCALE = -0.75
F32, BF16, F16, F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64
ROUNDING = {BF16: 2 ** -8, F16: 2 ** -11, F32: 2e-6}


def factors(out, columns, rank, types, device="cpu"):
    shapes = (out, columns), (rank, columns), (out, rank)
    torch.manual_seed(out + columns + rank)
    return [torch.randn(shape).to(device, dtype) for shape, dtype in zip(shapes, types)]


def call(given, magnitude, wanted, dtype=F32):
    """The outputs named in `wanted`, of norm, norm_square, gain and divisor."""
    wanted += [False] * (4 - len(wanted))
    return torch.ops.dorajit.weight_norm(*given, magnitude, SCALE, wanted, *(dtype,) * 4)


@pytest.mark.parametrize("types", [(BF16, BF16, BF16), (BF16, F32, F32), (F16, F16, F16), (F32, BF16, F32),
                                   (F32, F32, F32)])
@pytest.mark.parametrize("out, columns, rank", [(8, 16, 1), (33, 130, 7), (128, 256, 64)])
def test_weight_norm_outputs_alone_equal_outputs_together(device, out, columns, rank, types):
    given = factors(out, columns, rank, types, device)
    norms, magnitude = exact_norm(*given, SCALE), torch.rand(out, device=device) + 0.5
    with force_native():
        norm, = call(given, None, [True, False, False])
        square, = call(given, None, [False, True, False])
        gain, = call(given, magnitude, [False, False, True])
        together = call(given, magnitude, [True, True, True, True])
    torch.testing.assert_close(norm.double(), norms, rtol=2e-6, atol=0)
    torch.testing.assert_close(square.double(), norms.square(), rtol=4e-6, atol=0)
    torch.testing.assert_close(gain.double(), magnitude / norms, rtol=3e-6, atol=0)
    torch.testing.assert_close(together, (norm, square, gain, norm), rtol=0, atol=0)


def test_weight_norm_of_float64_is_computed_in_float64(device):
    given = factors(9, 33, 5, (F64, F64, F64), device)
    norm, = call(given, None, [True, False, False], F64)
    torch.testing.assert_close(norm, exact_norm(*given, SCALE), rtol=1e-14, atol=0)


def test_weight_norm_of_nearly_cancelling_terms_is_accurate(device):
    weight = torch.randn(64, 256, device=device)
    b, a = torch.linalg.qr(weight)  # weight = b @ a up to a relative error of 1e-6
    norm, = torch.ops.dorajit.weight_norm(weight, a.contiguous(), b.contiguous(), None, -1.0,
                                          [True, False, False, False], F32, F32, F32, F32)
    bound = 2e-6 * weight.norm(dim=1).max().item()
    torch.testing.assert_close(norm.double(), exact_norm(weight, a, b, -1.0), rtol=0, atol=bound)


def test_weight_norm_expression_matches_kernel(device):
    given = factors(40, 96, 12, (BF16, BF16, BF16), device)
    magnitude = torch.rand(40, device=device)
    by_kernel = call(given, magnitude, [True, True, True, True])
    with dorajit.disabled():
        by_expression = call(given, magnitude, [True, True, True, True])
    torch.testing.assert_close(by_kernel, by_expression, rtol=3e-6, atol=0)


@pytest.mark.parametrize("name", ["weight_norm", "compose_low_rank"])
def test_compiled_code_calls_the_operation(device, name):
    if name == "weight_norm":
        given = factors(16, 64, 4, (F32, F32, F32), device)
        def function(*of):
            return call(of, None, [True, False, False])[0]
    else:
        given = operands(16, 64, 4, BF16, BF16, device)
        def function(*of):
            return torch.ops.dorajit.compose_low_rank(*of, SCALE)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), function(*given))


@pytest.mark.parametrize("types", [(BF16, BF16, BF16), (F32, F32, F32)])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_non_finite_element_affects_only_its_row(device, types, wrong):
    given = factors(130, 700, 40, types, device)
    given[0][3, 699] = given[0][129, 0] = wrong
    given[2][70, 39] = wrong
    norm, = call(given, None, [True, False, False])
    assert (~norm.isfinite()).nonzero().flatten().tolist() == [3, 70, 129]


@needs_gpu
@pytest.mark.parametrize("types", [(BF16, BF16, BF16), (BF16, F32, F32)])
@pytest.mark.parametrize("out, columns, rank", [(200, 4096, 16), (1024, 1024, 384)])
def test_captured_weight_norm_is_replayed_with_new_values(out, columns, rank, types):
    given, others = factors(out, columns, rank, types, "cuda"), factors(out, columns, rank, types, "cuda")
    for one in others:
        one.mul_(2)
    magnitude = torch.rand(out, device="cuda")
    expected = call(others, magnitude, [True, False, True])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call(given, magnitude, [True, False, True])
    for one, other in zip(given, others):
        one.copy_(other)
    graph.replay()
    assert all(map(torch.equal, found, expected))


def test_gain_of_16_bit_magnitude_divides_by_the_rounded_norm(device):
    given = factors(130, 64, 4, (BF16, BF16, BF16), device)
    given[0][7], given[2][7] = 0, 0
    magnitude = torch.rand(130, device=device).bfloat16()
    norm, gain, divisor = call(given, magnitude, [True, False, True, True])
    assert torch.equal(divisor, norm.clamp_min(1e-12).bfloat16().float())
    assert torch.equal(gain, magnitude.float() / divisor)


def test_weight_norm_with_bad_arguments_raises(device):
    weight, a, b = given = factors(16, 64, 4, (F32, F32, F32), device)
    with pytest.raises(ValueError, match="`lora_B`"):
        call((weight, a, b[:, :3].contiguous()), None, [True, False, False])
    with force_native():
        with pytest.raises(errors.Error, match="`gain` is made of `magnitude`; pass it"):
            run.launch(WEIGHT_NORM, (*given, None), (None, None, F32, None), SCALE)
        with pytest.raises(errors.Error, match="`divisor` comes with `gain`"):
            run.launch(WEIGHT_NORM, (*given, torch.rand(16, device=device)), (F32, None, None, F32), SCALE)
    with dorajit.disabled(), pytest.raises(ValueError, match="pass it"):
        call(given, None, [False, False, True])


def test_weight_norm_results_are_constants_for_autograd(device):
    given = [one.requires_grad_() for one in factors(16, 64, 4, (F32, F32, F32), device)]
    assert not any(one.requires_grad for one in call(given, torch.rand(16, device=device), [True, True, True]))


# --- compose_low_rank ----------------------------------------------------------------------------

def operands(rows, cols, rank, factor, dtype, device="cpu", has_bias=True):
    torch.manual_seed(rows + cols + rank)
    low, b = torch.randn(rows, rank), torch.randn(cols, rank)
    result, gain, bias = torch.randn(rows, cols), 1 + 0.0015 * torch.randn(cols), torch.randn(cols)
    return (low.to(device, factor), b.to(device, factor), result.to(device, dtype), gain.to(device),
            bias.to(device, dtype) if has_bias else None)


def exact(low, b, result, gain, bias):
    scaled = SCALE * (low.double() @ b.double().T)
    base = result.double() - (0 if bias is None else bias.double())
    return result.double() + ((gain.double() - 1) * base + gain.double() * scaled), scaled + base


def assert_close(found, expected):
    torch.testing.assert_close(found.double(), expected, rtol=ROUNDING[found.dtype], atol=1e-4)


@pytest.mark.parametrize("factor, dtype", [(BF16, BF16), (F16, F16), (BF16, F32), (F16, BF16)])
@pytest.mark.parametrize("rows, cols, rank", [(1, 8, 1), (33, 130, 7), (65, 256, 64), (65, 256, 72), (300, 264, 384)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_compose_low_rank_matches_float64(device, factor, dtype, rows, cols, rank, has_bias):
    given = operands(rows, cols, rank, factor, dtype, device, has_bias)
    with force_native():
        out, inner = LOW_RANK.launch(*given, True, True, SCALE)
    for found, expected in zip((out, inner), exact(*given)):
        assert found.dtype == dtype
        assert_close(found, expected)
    alone = LOW_RANK.launch(*given, True, None, SCALE)
    assert torch.equal(alone[0] if isinstance(alone, tuple) else alone, out)


def test_compose_low_rank_may_write_into_the_base_result(device):
    given = operands(65, 256, 16, BF16, BF16, device)
    expected = LOW_RANK.launch(*given, True, None, SCALE)
    LOW_RANK.launch(*given, given[2], None, SCALE)
    assert torch.equal(given[2], expected[0] if isinstance(expected, tuple) else expected)


def test_compose_low_rank_operator_matches_kernel_and_expression(device):
    given = operands(40, 96, 12, BF16, BF16, device)
    out, inner = torch.ops.dorajit.compose_low_rank_inner(*given, SCALE)
    assert torch.equal(torch.ops.dorajit.compose_low_rank(*given, SCALE), out)
    with dorajit.disabled():
        by_expression = torch.ops.dorajit.compose_low_rank_inner(*given, SCALE)
    for found, other, expected in zip((out, inner), by_expression, exact(*given)):
        assert_close(found, expected)
        assert_close(other, expected)


def test_compose_low_rank_with_scale_0_ignores_the_product(device):
    low, *rest = operands(9, 24, 5, BF16, BF16, device)
    low[0, 0] = float("inf")
    by_kernel = torch.ops.dorajit.compose_low_rank(low, *rest, 0.0)
    with dorajit.disabled():
        by_expression = torch.ops.dorajit.compose_low_rank(low, *rest, 0.0)
    assert by_kernel.isfinite().all() and torch.equal(by_kernel, by_expression)


def most_rank(rank):
    """The highest rank at which layers with whole vectors per row call the kernel: on sm_90, by wgmma, 1024 if the rank
    is whole vectors, too."""
    return 1024 if torch.cuda.get_device_capability() == (9, 0) and rank % 8 == 0 else 384


@needs_gpu
@pytest.mark.parametrize("rank", [1, 16, 384, 385, 392, 1024, 1032])
@pytest.mark.parametrize("adapters", [BF16, F32])
def test_layers_call_compose_low_rank_up_to_the_highest_rank(launches, rank, adapters):
    is_served = rank <= most_rank(rank)
    layer = dorajit.nn.DoRALinear(torch.nn.Linear(64, 96, device="cuda", dtype=BF16), rank, dtype=adapters)
    launches()
    with torch.autocast("cuda", dtype=BF16, enabled=adapters is F32):
        layer(torch.randn(5, 64, device="cuda", dtype=BF16))
    assert launches().get("compose_low_rank", 0) == is_served
    if adapters is F32:
        layer(torch.randn(5, 64, device="cuda", dtype=BF16))
        assert "compose_low_rank" not in launches()


@needs_gpu
def test_layers_with_unaligned_rows_call_compose_low_rank_up_to_rank_384(launches):
    for rank in (384, 392):
        layer = dorajit.nn.DoRALinear(torch.nn.Linear(64, 97, device="cuda", dtype=BF16), rank, dtype=BF16)
        launches()
        layer(torch.randn(5, 64, device="cuda", dtype=BF16))
        assert launches().get("compose_low_rank", 0) == (rank == 384)


@needs_gpu
def test_compose_low_rank_accepts_single_row_of_any_stride():
    low, b, result, gain, _ = operands(1, 264, 72, BF16, BF16, "cuda", has_bias=False)
    def widened(row):  # a row of a matrix with unaligned rows
        wide = torch.zeros(2, row.shape[1] + 3, dtype=row.dtype, device="cuda")
        wide[:1, :row.shape[1]] = row
        return wide[:1, :row.shape[1]]
    expected = LOW_RANK.launch(low, b, result, gain, None, True, None, SCALE)
    found = LOW_RANK.launch(widened(low), b, widened(result), gain, None, True, None, SCALE)
    first = [one[0] if isinstance(one, tuple) else one for one in (expected, found)]
    assert torch.equal(*first)


@needs_gpu
def test_layers_raise_errors_of_compose_low_rank(monkeypatch):
    from dorajit.operations import compositions
    def fail(*_):
        raise errors.InternalError("planted", 1)
    monkeypatch.setattr(LOW_RANK, "launch", fail)
    low, b, result, gain, _ = operands(9, 24, 5, BF16, BF16, "cuda")
    with pytest.raises(errors.InternalError, match="planted"):
        compositions.compose_low_rank(low, b, result, gain, None, SCALE, True)


def test_compose_low_rank_with_bad_factors_raises(device):
    low, b, *rest = operands(16, 64, 4, BF16, BF16, device)
    with pytest.raises(ValueError, match="`lora_B`"):
        torch.ops.dorajit.compose_low_rank(low, b[:, :3].contiguous(), *rest, SCALE)
    given = operands(9, 24, 5, F32, F32, device)
    with pytest.raises(errors.Error, match="`low` and `lora_B`"):
        torch.ops.dorajit.compose_low_rank(*given, SCALE)
    with dorajit.disabled():
        assert_close(torch.ops.dorajit.compose_low_rank(*given, SCALE), exact(*given)[0])
