"""weight_norm against float64, its budget, what is kept, and what it refuses."""

import dorajit
import pytest
import torch
from dorajit import eligibility, norm, norm_cache

RANK = 24  # of factors in float32 that no kernel multiplies on a GPU
TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def factors(out, columns, rank, device, dtype=torch.float32, factor_dtype=None):
    weight = torch.randn(out, columns, device=device).to(dtype)
    a = (torch.randn(rank, columns, device=device) / 8).to(factor_dtype or dtype)
    b = torch.randn(out, rank, device=device).to(factor_dtype or dtype)
    return weight, a, b


def exact(weight, a, b, scale):
    return (weight.double() + scale * (b.double() @ a.double())).norm(dim=1)


def assert_norm(found, expected):
    step = 1e-13 if found.dtype == torch.float64 else 2e-6
    torch.testing.assert_close(found.double(), expected, rtol=step, atol=0)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("factor_dtype", [None, torch.float32])
@pytest.mark.parametrize("out, columns, rank", [(1, 1, 1), (7, 5, 3), (64, 64, 8), (130, 333, 17),
                                                (33, 1000, 64), (300, 70, 96)])
def test_equals_float64(device, launches, dtype, factor_dtype, out, columns, rank):
    given = factors(out, columns, rank, device, dtype, factor_dtype)
    found = dorajit.weight_norm(*given, 0.375)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_norm(found, exact(*given, 0.375))
    is_for_kernel = device == "cuda" and (factor_dtype is None or dtype != torch.float64) and (
        rank <= 16 or dtype.itemsize == 2 and factor_dtype is None)
    assert launches() == {"weight_norm" if is_for_kernel else "norm_assembly": 1}


@pytest.mark.parametrize("scale", [-2.0, 0.0, 1e-3, 7.5])
def test_scales(device, scale):
    given = factors(40, 90, 6, device)
    assert_norm(dorajit.weight_norm(*given, scale), exact(*given, scale))


def test_without_a_scale_the_factors_are_not_read(device):
    weight, a, b = factors(8, 16, 2, device)
    found = dorajit.weight_norm(weight, a * float("nan"), b, 0.0)
    assert_norm(found, weight.double().norm(dim=1))


def test_chunks_change_no_more_than_rounding(device):
    given = factors(700, 900, 48, device, torch.bfloat16)
    assert norm.chunks(700, 900, 1 << 20, norm._cost_of_low_rank_terms(
        *given, torch.float32, False)) != (700, 900)
    assert_norm(dorajit.weight_norm(*given, 0.5, chunk_mb=1), exact(*given, 0.5))


@pytest.mark.parametrize("out, columns, rank, mb", [(8192, 8192, 384, 256), (8192, 28672, 768, 256),
                                                    (65536, 4096, 512, 64), (4096, 4096, 16, 16),
                                                    (12288, 4096, 384, 64)])
@pytest.mark.parametrize("mixed", [False, True])
def test_chunks_stay_in_the_budget(out, columns, rank, mb, mixed):
    with torch.device("meta"):
        given = factors(out, columns, rank, "meta", torch.bfloat16, torch.float32)
    for cost in (norm._cost_of_low_rank_terms(*given, torch.float32, mixed),
                 norm._cost_of_squares(given[0], torch.float32)):
        size = norm.chunks(out, columns, mb << 20, cost)
        assert cost(*size) <= mb << 20
        assert size.columns == columns or size.columns % 64 == 0
        assert size.rows == out or size.rows % 64 == 0


class Peak(torch.utils._python_dispatch.TorchDispatchMode):
    """The most bytes that lay at once in tensors made inside."""

    def __init__(self):
        super().__init__()
        self.live, self.peak = {}, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = {one.untyped_storage()._cdata for one in torch.utils._pytree.tree_leaves((args, kwargs))
                 if isinstance(one, torch.Tensor)}
        for one in torch.utils._pytree.tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.untyped_storage()._cdata not in given:
                reference = torch.multiprocessing.reductions.StorageWeakRef(one.untyped_storage())
                self.live[one.untyped_storage()._cdata] = (reference, one.untyped_storage().nbytes())
        self.live = {key: kept for key, kept in self.live.items() if not kept[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return result


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_temporaries_stay_in_the_budget(monkeypatch, dtype):
    monkeypatch.setattr(eligibility, "is_observed", lambda: False)  # but by the mode that counts bytes
    given = factors(3000, 1500, 32, "cpu", dtype)
    with Peak() as peak:
        dorajit.weight_norm(*given, 0.5, chunk_mb=2)
    assert 1 << 19 < peak.peak <= 2 << 20


def test_autocast_and_tf32_do_not_count(device):
    given = factors(64, 512, 16, device)
    def precisions():
        return [value for _, _, value, _ in norm.precision._settings()]
    full = norm.precision._FULL["fp32_precision" if hasattr(torch.backends, "fp32_precision")
                                else "allow_tf32"]
    expected = dorajit.weight_norm(*given, 0.5)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast(device, dtype=torch.bfloat16):
            found = dorajit.weight_norm(*given, 0.5)
        assert torch.get_float32_matmul_precision() == "medium"
        inside = []
        with norm.precision.full(device):
            inside.append(precisions())
            inside.append(torch.is_autocast_enabled(device))
        assert set(inside[0]) == {full} and inside[1] is False
        assert full not in precisions()
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(found, expected)


def test_parts_of_16_bits_make_up_float32(device):
    matrix = torch.randn(50, 50, device=device)
    parts = norm.precision._bfloat16_parts(matrix)
    assert torch.equal(sum(part.double() for part in parts).float(), matrix)


def test_is_a_constant_for_autograd(device):
    weight, a, b = (one.requires_grad_() for one in factors(8, 16, 2, device))
    assert not dorajit.weight_norm(weight, a, b, 0.5).requires_grad


@pytest.mark.parametrize("out, columns, rank", [(0, 4, 2), (4, 0, 2), (4, 3, 0)])
def test_empty_ones(device, out, columns, rank):
    given = factors(out, columns, rank, device)
    assert_norm(dorajit.weight_norm(*given, 0.5), exact(*given, 0.5))


def test_weights_of_convolutions_and_views(device):
    weight, a, b = factors(12, 24, 3, device)
    conv = dorajit.weight_norm(weight.view(12, 6, 2, 2), a.view(3, 6, 2, 2), b.view(12, 3, 1, 1), 0.5)
    assert torch.equal(conv, dorajit.weight_norm(weight, a, b, 0.5))
    turned = dorajit.weight_norm(weight.T.contiguous().T, a, b, 0.5)
    assert_norm(turned, exact(weight, a, b, 0.5))


# --- what is kept --------------------------------------------------------------------------------

CHANGES = {
    "in place": lambda w: w.mul_(2),
    "new data": lambda w: setattr(w, "data", w.data * 2),
    "twice new data": lambda w: [setattr(w, "data", w.data * 2) for _ in range(2)],
    "another type": lambda w: setattr(w, "data", (w.data * 3).bfloat16()),
    "forgotten": lambda w: (w.data.mul_(2), dorajit.forget_weight_norms(w)),
    "all forgotten": lambda w: (w.data.mul_(2), dorajit.forget_weight_norms()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_weight_is_a_new_one(device, change):
    weight, a, b = factors(20, 30, RANK, device)
    weight = torch.nn.Parameter(weight, requires_grad=False)
    first = dorajit.weight_norm(weight, a, b, 0.5)
    assert norm_cache.kept(weight)
    CHANGES[change](weight)
    found = dorajit.weight_norm(weight, a, b, 0.5)
    assert_norm(found, exact(weight, a, b, 0.5))
    assert not torch.equal(found, first)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("how", ["fused", "foreach"])
def test_a_trained_weight(device, optimizer, how):
    """Fused optimizers do not count what they write."""
    weight, a, b = factors(20, 30, RANK, device)
    weight = torch.nn.Parameter(weight, requires_grad=False)
    dorajit.weight_norm(weight, a, b, 0.5)
    weight.requires_grad_()
    steps = optimizer([weight], lr=0.1, **{how: True})
    for _ in range(2):
        weight.grad = torch.ones_like(weight)
        steps.step()
        assert_norm(dorajit.weight_norm(weight, a, b, 0.5), exact(weight, a, b, 0.5))
    weight.requires_grad_(False)
    assert_norm(dorajit.weight_norm(weight, a, b, 0.5), exact(weight, a, b, 0.5))


def test_squares_are_made_once(device, monkeypatch):
    made = []
    squares = norm._squares
    monkeypatch.setattr(norm, "_squares", lambda *args: made.append(1) or squares(*args))
    weight, a, b = factors(20, 30, RANK, device)
    for _ in range(3):
        dorajit.weight_norm(weight, a, b, 0.5)
        dorajit.weight_norm(weight.T.T, a, b, 0.5, frozen=weight)
    assert len(made) == 1


def test_the_operator_of_compiled_code_keeps_nothing(device):
    weight, a, b = factors(20, 30, RANK, device)
    found = torch.ops.dorajit.factored_norm(weight, a, b, 0.5, None)
    assert_norm(found, exact(weight, a, b, 0.5))
    assert not norm_cache.kept(weight)


def test_nothing_is_kept_of_a_weight_that_is_gone(device):
    weight, a, b = factors(20, 30, RANK, device)
    dorajit.weight_norm(weight, a, b, 0.5)
    assert len(norm_cache._kept) >= 1
    before = len(norm_cache._kept)
    del weight
    assert len(norm_cache._kept) == before - 1


def test_inference_tensors(device):
    with torch.inference_mode():
        given = factors(20, 30, 4, device)
        dorajit.weight_norm(*given, 0.5)
        given[0].mul_(2)
        assert_norm(dorajit.weight_norm(*given, 0.5), exact(*given, 0.5))


def test_compiled(device):
    given = factors(20, 30, 4, device)
    compiled = torch.compile(lambda *t: dorajit.weight_norm(*t, 0.5) * 2, fullgraph=True,
                             backend="aot_eager")
    torch.testing.assert_close(compiled(*given), dorajit.weight_norm(*given, 0.5) * 2)


# --- what is refused -----------------------------------------------------------------------------

@pytest.mark.parametrize("name, change, error, words", [
    ("lora_A", lambda w, a, b: (w, a[:, 1:], b), ValueError, "give it 30 columns"),
    ("lora_B", lambda w, a, b: (w, a, b[1:]), ValueError, r"give it \(20, 4\)"),
    ("lora_B", lambda w, a, b: (w, a, b.T), ValueError, r"give it \(20, 4\)"),
    ("weight", lambda w, a, b: (w[0], a, b), ValueError, "pass a matrix"),
    ("weight", lambda w, a, b: (w.int(), a, b), TypeError, "floating point"),
    ("lora_A", lambda w, a, b: (w, None, b), TypeError, "NoneType"),
    ("lora_A", lambda w, a, b: (w, a.to("meta"), b), ValueError, "move both to one device")])
def test_refusals_name_the_argument(device, name, change, error, words):
    with pytest.raises(error, match=f"argument `{name}`.*{words}"):
        dorajit.weight_norm(*change(*factors(20, 30, 4, device)), 0.5)


def test_wrong_scales_and_budgets(device):
    given = factors(4, 6, 2, device)
    with pytest.raises(TypeError, match="`scale`"):
        dorajit.weight_norm(*given, torch.tensor(1.0))
    for mb in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="`chunk_mb`"):
            dorajit.weight_norm(*given, 1.0, chunk_mb=mb)


def test_what_is_not_finite_stays_so(device):
    weight, a, b = factors(4, 6, 2, device)
    weight[1, 2], weight[2, 3] = float("nan"), float("inf")
    found = dorajit.weight_norm(weight, a, b, 0.5)
    assert found[1].isnan() and not found[2].isfinite() and found[[0, 3]].isfinite().all()


def test_gain_of_a_zero_row(device):
    from dorajit.gain import gain
    for dtype, eps in ((torch.float32, 1e-12), (torch.float64, 1e-12), (torch.bfloat16, 1e-6)):
        magnitude = torch.tensor([0.0, 1.0], device=device, dtype=dtype, requires_grad=True)
        found = gain(magnitude, torch.zeros(2, device=device))
        assert found.isfinite().all() and found[0] == 0
        torch.testing.assert_close(found[1].item(), 1 / eps, rtol=1e-2, atol=0)
        found.sum().backward()
        assert magnitude.grad is not None


@pytest.mark.parametrize("columns", [64, 700, 1024, 4099])
@pytest.mark.parametrize("pieces", [1, 2, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_in_pieces(device, columns, pieces, dtype):
    a = torch.randn(24, columns, device=device, dtype=dtype)
    for at_once in (columns, 640):
        found = norm._gram(a, dtype, at_once, pieces, False)
        wanted = a.double() @ a.double().T
        assert (found - wanted).abs().max() <= 64 * torch.finfo(dtype).eps * wanted.abs().max()


def test_a_traced_norm_is_the_norm(device):
    weight, a, b = (torch.randn(size, device=device) for size in ((12, 20), (4, 20), (12, 4)))
    with torch.no_grad():
        traced = torch.jit.trace(lambda *of: dorajit.weight_norm(*of, 2.0), (weight, a, b))
        torch.testing.assert_close(traced(weight, a, b), dorajit.weight_norm(weight, a, b, 2.0))
        torch.testing.assert_close(traced(2 * weight, a, b), dorajit.weight_norm(2 * weight, a, b, 2.0))
