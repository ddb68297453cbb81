"""weight_norm: comparison with float64, budget, refused arguments."""

import gc

import dorajit
import pytest
import torch
from dorajit.norms import matrix_norms, norm, precision
from dorajit.operations import eligibility
from reference import assert_norm, exact_norm

RANK = 24  # float32 factors of this rank use products of PyTorch, except on a GPU
TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def factors(out, columns, rank, device, dtype=torch.float32, factor_dtype=None):
    weight = torch.randn(out, columns, device=device).to(dtype)
    a = (torch.randn(rank, columns, device=device) / 8).to(factor_dtype or dtype)
    b = torch.randn(out, rank, device=device).to(factor_dtype or dtype)
    return weight, a, b


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("factor_dtype", [None, torch.float32])
@pytest.mark.parametrize("out, columns, rank", [(1, 1, 1), (7, 5, 3), (64, 64, 8), (130, 333, 17),
                                                (33, 1000, 64), (300, 70, 96)])
def test_weight_norm_matches_float64(device, launches, dtype, factor_dtype, out, columns, rank):
    given = factors(out, columns, rank, device, dtype, factor_dtype)
    found = dorajit.weight_norm(*given, 0.375)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_norm(found, exact_norm(*given, 0.375))
    is_of_one_type = factor_dtype is None
    is_on_tensor_cores = device == "cuda" and dtype != torch.float64
    is_for_kernel = (is_of_one_type or dtype != torch.float64) and (
            rank <= 16 or is_on_tensor_cores or (device == "cpu" and rank <= 64))
    assert launches() == ({"weight_norm": 1} if is_for_kernel else {})


@pytest.mark.parametrize("scale", [-2.0, 0.0, 1e-3, 7.5, 2])
def test_weight_norm_matches_float64_for_any_scale(device, scale):
    given = factors(40, 90, 6, device)
    assert_norm(dorajit.weight_norm(*given, scale), exact_norm(*given, scale))


def test_weight_norm_with_scale_0_does_not_read_the_factors(device):
    weight, a, b = factors(8, 16, 2, device)
    found = dorajit.weight_norm(weight, a * float("nan"), b, 0.0)
    assert_norm(found, weight.double().norm(dim=1))


def test_weight_norm_with_small_budget_differs_by_rounding_only(device):
    given = factors(700, 900, 48, device, torch.bfloat16)
    assert_norm(dorajit.weight_norm(*given, 0.5, chunk_mb=1), exact_norm(*given, 0.5))


class Peak(torch.utils._python_dispatch.TorchDispatchMode):
    """Records the peak of bytes in tensors that were created inside."""

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
def test_temporaries_stay_within_the_budget(monkeypatch, dtype):
    monkeypatch.setattr(eligibility, "is_observed", lambda: False)  # ignore the mode that counts bytes
    given = factors(3000, 1500, 32, "cpu", dtype)
    with Peak() as peak:
        dorajit.weight_norm(*given, 0.5, chunk_mb=2)
    copies = 4 * 32 * (3000 + 1500) if dtype is torch.bfloat16 else 0
    assert 1 << 20 < peak.peak - copies <= 2 << 20


def test_weight_norm_ignores_autocast_and_tf32(device):
    given = factors(64, 512, 16, device)
    def precisions():
        return [value for _, _, value, _ in precision._settings()]
    full = precision._FULL["fp32_precision" if hasattr(torch.backends, "fp32_precision") else "allow_tf32"]
    expected = dorajit.weight_norm(*given, 0.5)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast(device, dtype=torch.bfloat16):
            found = dorajit.weight_norm(*given, 0.5)
        assert torch.get_float32_matmul_precision() == "medium"
        inside = []
        with precision.full(device):
            inside.append(precisions())
            inside.append(torch.is_autocast_enabled(device))
        assert set(inside[0]) == {full} and inside[1] is False
        assert full not in precisions()
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(found, expected)


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="before PyTorch 2.9")
@pytest.mark.parametrize("own, expected", [("none", "ieee"), ("bf16", "bf16")])
def test_weight_norm_leaves_precision_inherited_from_the_global_setting(device, own, expected):
    backends = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    before = torch.backends.fp32_precision
    try:
        torch.backends.fp32_precision = "tf32"
        for one, value in zip(backends, ("none", own)):
            one.fp32_precision = value
        dorajit.weight_norm(*factors(64, 40, 32, device), 0.5)
        assert [one.fp32_precision for one in backends] == ["tf32", "tf32" if own == "none" else own]
        torch.backends.fp32_precision = "ieee"
        assert [one.fp32_precision for one in backends] == ["ieee", expected]
    finally:
        torch.backends.fp32_precision = before
        for one in backends:
            one.fp32_precision = "none"


def test_bfloat16_parts_sum_to_the_float32_matrix(device):
    matrix = torch.randn(50, 50, device=device)
    parts = precision._bfloat16_parts(matrix)
    assert torch.equal(sum(part.double() for part in parts).float(), matrix)


def test_products_of_bfloat16_parts_are_as_exact_as_float32(device):
    a, b = torch.randn(40, 70, device=device), torch.randn(70, 50, device=device)
    parts = precision._split(a, b)
    assert all(one.dtype is torch.bfloat16 for one in parts)
    found = parts[0].double() @ parts[1].double()
    magnitudes = a.double().abs() @ b.double().abs()
    assert ((found - a.double() @ b.double()).abs() <= 2.0 ** -23 * magnitudes).all()


def test_weight_norm_is_a_constant_for_autograd(device):
    weight, a, b = (one.requires_grad_() for one in factors(8, 16, 2, device))
    assert not dorajit.weight_norm(weight, a, b, 0.5).requires_grad


@pytest.mark.parametrize("out, columns, rank", [(0, 4, 2), (4, 0, 2), (4, 3, 0)])
def test_weight_norm_of_empty_weights_gives_zeros(device, out, columns, rank):
    given = factors(out, columns, rank, device)
    assert_norm(dorajit.weight_norm(*given, 0.5), exact_norm(*given, 0.5))


def test_weight_norm_accepts_convolution_weights(device):
    weight, a, b = factors(12, 24, 3, device)
    conv = dorajit.weight_norm(weight.view(12, 6, 2, 2), a.view(3, 6, 2, 2), b.view(12, 3, 1, 1), 0.5)
    assert torch.equal(conv, dorajit.weight_norm(weight, a, b, 0.5))


@pytest.mark.parametrize("a_shape", [(3, 6, 2, 2), (3, 24)])
def test_weight_norm_of_channels_last_weight_makes_no_copy(device, launches, a_shape):
    weight, a, b = factors(12, 24, 3, device)
    conv = weight.view(12, 6, 2, 2).contiguous(memory_format=torch.channels_last)
    assert norm.matrices(conv, a.view(a_shape), b)[0].data_ptr() == conv.data_ptr()
    launches()
    assert_norm(dorajit.weight_norm(conv, a.view(a_shape), b, 0.5), exact_norm(weight, a, b, 0.5))
    assert launches() == {"weight_norm": 1}


VIEWS = {
    "transposed": lambda one: one.T.contiguous().T,
    "parts of wider rows": lambda one: torch.cat([one, one], 1)[:, :one.shape[1]],
    "every other column": lambda one: one.repeat_interleave(2, 1)[:, ::2],
}


@pytest.mark.parametrize("rank", [3, RANK])
@pytest.mark.parametrize("view", VIEWS)
def test_weight_norm_of_views_matches_float64(device, view, rank):
    given = factors(12, 24, rank, device)
    views = [VIEWS[view](one) for one in given]
    for place in range(3):
        some = [views[i] if i == place else one for i, one in enumerate(given)]
        assert_norm(dorajit.weight_norm(*some, 0.5), exact_norm(*given, 0.5))
    repeated = given[0][:1].expand(12, 24)
    assert_norm(dorajit.weight_norm(repeated, *given[1:], 0.5), exact_norm(repeated, *given[1:], 0.5))
    narrow = given[0].T.contiguous().T[:, :1]
    assert_norm(dorajit.weight_norm(narrow, given[1][:, :1], given[2], 0.5),
                exact_norm(narrow, given[1][:, :1], given[2], 0.5))


@pytest.mark.parametrize("dtype", TYPES)
def test_weight_norm_of_a_transposed_weight_beyond_the_budget_is_not_copied_on_a_gpu(device, launches, dtype):
    weight, a, b = factors(480, 3000, 8, device, dtype)
    launches()
    assert_norm(dorajit.weight_norm(weight.T.contiguous().T, a, b, 0.5, chunk_mb=1), exact_norm(weight, a, b, 0.5))
    made = launches()
    assert device == "cpu" or made == {}  # products of PyTorch, of as many rows at a time as the budget holds


@pytest.mark.parametrize("columns", [704, 701])
def test_gain_of_a_small_transposed_weight_is_one_launch(device, launches, monkeypatch, columns):
    weight, a, b = factors(48, columns, 8, device)
    magnitude = torch.rand(48, device=device) + 1
    monkeypatch.setattr(norm, "_computed", None)
    launches()
    divisor, gain = norm.divisor_and_gain(weight.T.contiguous().T, a, b, magnitude, 0.5)
    assert launches() == {"weight_norm": 1}
    assert_norm(divisor, exact_norm(weight, a, b, 0.5))
    assert torch.equal(gain, magnitude / divisor)


@pytest.mark.parametrize("dtype", TYPES)
def test_weight_norm_of_transposed_weight_on_a_cpu_copies_columns_that_fit_the_cache(launches, dtype):
    weight, a, b = factors(48, 20000, 8, "cpu", dtype)
    weight = weight.T.contiguous().T
    launches()
    assert_norm(dorajit.weight_norm(weight, a, b, 0.5), exact_norm(weight, a, b, 0.5))
    columns = (1 << 20) // (48 * weight.element_size()) // 256 * 256
    assert launches() == {"weight_norm": -(-20000 // columns)}


def test_weight_norm_of_plain_matrices_is_one_launch(device, launches, monkeypatch):
    given = [torch.nn.Parameter(one) for one in factors(20, 30, 4, device)]
    expected = matrix_norms._by_kernel(*(one.detach() for one in given), 0.5, 1 << 20, torch.float32)
    launches()
    monkeypatch.setattr(norm, "_computed", None)
    found = dorajit.weight_norm(*given, 0.5)
    assert launches() == {"weight_norm": 1}
    assert torch.equal(found, expected) and not found.requires_grad


# --- lifetime of tensors -------------------------------------------------------------------------

def living():
    gc.collect()
    return {id(one) for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter)}


@pytest.mark.parametrize("rank", [4, RANK])
@pytest.mark.parametrize("call", [lambda *given: dorajit.weight_norm(*given, 0.5),
                                  lambda *given: torch.ops.dorajit.row_norms(*given, 0.5, None)])
def test_weight_norm_keeps_no_tensor_alive(device, rank, call):
    given = factors(20, 30, rank, device)
    before = living()
    call(*given)
    assert living() == before


def test_weight_norm_accepts_inference_tensors(device):
    with torch.inference_mode():
        given = factors(20, 30, 4, device)
        dorajit.weight_norm(*given, 0.5)
        given[0].mul_(2)
        assert_norm(dorajit.weight_norm(*given, 0.5), exact_norm(*given, 0.5))


def test_compiled_weight_norm_matches_eager(device):
    given = factors(20, 30, 4, device)
    compiled = torch.compile(lambda *t: dorajit.weight_norm(*t, 0.5) * 2, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), dorajit.weight_norm(*given, 0.5) * 2)


# --- refused arguments ---------------------------------------------------------------------------

@pytest.mark.parametrize("name, change, error, words", [
    ("lora_A", lambda w, a, b: (w, a[:, 1:], b), ValueError, "give it 30 columns"),
    ("lora_B", lambda w, a, b: (w, a, b[1:]), ValueError, r"give it \(20, 4\)"),
    ("lora_B", lambda w, a, b: (w, a, b.T), ValueError, r"give it \(20, 4\)"),
    ("weight", lambda w, a, b: (w[0], a, b), ValueError, "pass a matrix"),
    ("weight", lambda w, a, b: (w.int(), a, b), TypeError, "floating point"),
    ("lora_A", lambda w, a, b: (w, None, b), TypeError, "NoneType"),
    ("lora_A", lambda w, a, b: (w, a.to("meta"), b), ValueError, "move both to one device")])
def test_weight_norm_with_bad_arguments_raises(device, name, change, error, words):
    with pytest.raises(error, match=f"argument `{name}`.*{words}"):
        dorajit.weight_norm(*change(*factors(20, 30, 4, device)), 0.5)


def test_weight_norm_with_wrong_scale_or_budget_raises(device):
    given = factors(4, 6, 2, device)
    with pytest.raises(TypeError, match="`scale`"):
        dorajit.weight_norm(*given, torch.tensor(1.0))
    for mb in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="`chunk_mb`"):
            dorajit.weight_norm(*given, 1.0, chunk_mb=mb)


def test_weight_norm_of_non_finite_rows_is_not_finite(device):
    weight, a, b = factors(4, 6, 2, device)
    weight[1, 2], weight[2, 3] = float("nan"), float("inf")
    found = dorajit.weight_norm(weight, a, b, 0.5)
    assert found[1].isnan() and not found[2].isfinite() and found[[0, 3]].isfinite().all()


def test_gain_of_zero_row_is_finite(device):
    from dorajit.operations.gain import gain
    for dtype, eps in ((torch.float32, 1e-12), (torch.float64, 1e-12), (torch.bfloat16, 1e-12), (torch.float16, 1e-6)):
        magnitude = torch.tensor([0.0, 1.0], device=device, dtype=dtype, requires_grad=True)
        found = gain(magnitude, torch.zeros(2, device=device))
        assert found.isfinite().all() and found[0] == 0
        torch.testing.assert_close(found[1].item(), 1 / eps, rtol=2e-2, atol=0)
        found.sum().backward()
        assert magnitude.grad is not None


def test_traced_weight_norm_matches_eager(device):
    weight, a, b = (torch.randn(size, device=device) for size in ((12, 20), (4, 20), (12, 4)))
    with torch.no_grad():
        traced = torch.jit.trace(lambda *of: dorajit.weight_norm(*of, 2.0), (weight, a, b))
        torch.testing.assert_close(traced(weight, a, b), dorajit.weight_norm(weight, a, b, 2.0))
        torch.testing.assert_close(traced(2 * weight, a, b), dorajit.weight_norm(2 * weight, a, b, 2.0))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_weight_norm_of_freed_memory_raises(device, place):
    given = list(factors(20, 30, 4, device))
    flat = torch.zeros(given[place].numel() + 8, device=device)
    given[place] = flat[8:].view(given[place].shape)
    flat.untyped_storage().resize_(0)  # as FSDP does between forward passes; the view keeps its address
    name = ("weight", "lora_A", "lora_B")[place]
    with pytest.raises(ValueError, match=f"`{name}` .*its memory was freed"):
        dorajit.weight_norm(*given, 0.5)
    x = torch.randn(3, 30, device=device)
    with pytest.raises(ValueError, match=f"`{name}` .*its memory was freed"):
        dorajit.dora_linear(x, *given, torch.ones(20, device=device), 0.5)
