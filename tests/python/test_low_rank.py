"""The operation compose_low_rank: the composition over a low-rank product that is never in memory."""

import dorajit
import pytest
import torch
from dorajit import errors
from dorajit.control import force_native
from dorajit.operations.table import operations

LOW_RANK = operations["compose_low_rank"]
SCALE = -0.75
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
ROUNDING = {BF16: 2 ** -8, F16: 2 ** -11, F32: 2e-6}


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


def test_compiled_code_calls_compose_low_rank(device):
    given = operands(16, 64, 4, BF16, BF16, device)
    compiled = torch.compile(lambda *of: torch.ops.dorajit.compose_low_rank(*of, SCALE), fullgraph=True,
                             backend="aot_eager")
    assert torch.equal(compiled(*given), torch.ops.dorajit.compose_low_rank(*given, SCALE))
