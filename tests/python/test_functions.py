"""The results of every function in kernels, without autograd."""

import dorajit
import numpy as np
import pytest
import reference
import torch
from dorajit import _native, _torch_setup
from reference import SCALE, operands

MIXES = [(torch.float32, torch.float32), (torch.float64, torch.float64),
         (torch.bfloat16, torch.bfloat16), (torch.float16, torch.float16),
         (torch.bfloat16, torch.float32), (torch.float16, torch.float32)]
SHAPES = [((5, 37), None), ((2, 3, 64), None), ((2, 3, 64), (1, 64)), ((2, 3, 64), (1, 1, 64)),
          ((2, 5, 3, 4), (1, 5, 1, 1)), ((2, 5, 6), (5, 1)), ((4, 6), (1, 1)), ((7,), None),
          ((64, 256), None), ((7, 9), (1,)), ((3, 4, 5), ())]


@pytest.fixture(params=["exchange", "attributes"])
def reads(request):
    """How tensors are read: as by a PyTorch with DLPack's C exchange API, or without."""
    if request.param == "exchange" and _torch_setup.EXCHANGE_API is None:
        pytest.skip("this PyTorch has no C exchange API")
    _torch_setup.configure(_torch_setup.EXCHANGE_API if request.param == "exchange" else None)
    yield request.param
    _torch_setup.configure(_torch_setup.EXCHANGE_API)


@pytest.mark.parametrize("dtype, gain_dtype", MIXES)
@pytest.mark.parametrize("shape, gain_shape", SHAPES)
@pytest.mark.parametrize("inplace", [False, True])
def test_compose_equals_the_expression_rounded_once(device, launches, dtype, gain_dtype, shape, gain_shape, inplace):
    lora, base, gain = operands(shape, device, dtype, gain_dtype, shape[-1:] if gain_shape is None else gain_shape)
    expected = reference.compose(lora, base, gain, SCALE)
    kept = lora.clone()
    out = dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=inplace)
    assert torch.equal(out, expected)
    assert out.dtype is dtype and out.shape == lora.shape
    assert (out is lora) == inplace
    assert inplace or torch.equal(lora, kept)
    assert launches() == {"compose": 1}


@pytest.mark.parametrize("dtype, gain_dtype", MIXES)
@pytest.mark.parametrize("shape, gain_shape", SHAPES[:6] + SHAPES[-2:])
def test_forward_and_inner_equal_the_expressions(reads, device, launches, dtype, gain_dtype, shape, gain_shape):
    lora, base, gain = operands(shape, device, dtype, gain_dtype, gain_shape)
    out, inner = dorajit.fused_dora_forward_and_inner(lora, base, gain, SCALE)
    assert torch.equal(out, reference.compose(lora, base, gain, SCALE))
    assert torch.equal(inner, reference.inner(lora, base, SCALE))
    assert launches() == {"compose_inner": 1}


@pytest.mark.parametrize("dtype, gain_dtype", MIXES)
@pytest.mark.parametrize("shape, gain_shape", SHAPES[:6] + SHAPES[-2:] + [((700, 33), None)])
def test_backward_equals_the_expressions(reads, device, launches, dtype, gain_dtype, shape, gain_shape):
    d_out, inner, gain = operands(shape, device, dtype, gain_dtype, gain_shape)
    d_lora, d_base, d_gain = dorajit.compose_backward(d_out, inner, gain, SCALE)
    to_lora, to_base, to_gain = reference.gradients(d_out, inner, gain, SCALE)
    assert torch.equal(d_lora, to_lora)
    assert torch.equal(d_base, to_base)
    assert d_gain.shape == gain.shape and d_gain.dtype is gain_dtype
    reference.assert_sum_close(d_gain, to_gain, gain_dtype)
    assert launches() == {"backward": 1}


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False),
                                    (False, False, True), (False, True, True), (False, False, False)])
def test_backward_computes_only_wanted_gradients(device, launches, wanted):
    d_out, inner, gain = operands((6, 16), device)
    every = dorajit.compose_backward(d_out, inner, gain, SCALE)
    launches()
    some = dorajit.compose_backward(d_out, inner if wanted[2] else None, gain, SCALE, *wanted)
    for one, other, want in zip(some, every, wanted):
        assert torch.equal(one, other) if want else one is None
    assert launches() == ({"backward": 1} if any(wanted) else {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norm_assembly_returns_a_tuple_of_one(device, launches, dtype):
    w, cross, ba = (torch.randn(129, device=device, dtype=dtype) for _ in range(3))
    w[3] = torch.nan
    result = dorajit.fused_norm_assembly(w, cross, ba, SCALE)
    assert isinstance(result, tuple) and len(result) == 1
    assert torch.equal(result[0].nan_to_num(-1), reference.norm(w, cross, ba, SCALE).nan_to_num(-1))
    assert torch.isnan(result[0][3])
    assert launches() == {"norm_assembly": 1}


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -0.0, 1e300])
def test_special_scales_give_the_values_of_the_expressions(device, launches, scale):
    lora, base, gain = operands((3, 8), device)
    out = dorajit.fused_dora_compose(lora, base, gain, scale, inplace=False)
    expected = reference.compose(lora, base, gain, scale)
    assert torch.equal(out.nan_to_num(7), expected.nan_to_num(7))
    norm, = dorajit.fused_norm_assembly(gain, gain, gain, scale)
    assert torch.equal(norm.nan_to_num(7), reference.norm(gain, gain, gain, scale).nan_to_num(7))
    assert launches() == {"compose": 1, "norm_assembly": 1}


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (2, 0, 4)])
def test_functions_of_empty_tensors_give_empty_results(device, shape):
    lora, base, gain = operands(shape, device)
    assert dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False).shape == shape
    d_lora, _, d_gain = dorajit.compose_backward(lora, base, gain, SCALE)
    assert d_lora.shape == shape
    assert torch.equal(d_gain, torch.zeros_like(gain))


def test_compose_of_strided_rows_runs_natively(reads, device, launches):
    wide = torch.randn(6, 100, device=device)
    lora, base, gain = wide[:, :32], wide[:, 40:72], 1 + wide[0, :32] / 8
    with dorajit.force_native():
        out = dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False)
    assert torch.equal(out, reference.compose(lora, base, gain, SCALE))
    assert launches() == {"compose": 1}


def test_compose_in_place_on_slice_writes_only_the_slice(device):
    wide = torch.randn(6, 100, device=device)
    kept = wide.clone()
    lora, base, gain = wide[:, :32], torch.randn(6, 32, device=device), torch.rand(32, device=device)
    expected = reference.compose(lora, base, gain, SCALE)
    dorajit.fused_dora_compose(lora, base, gain, SCALE)
    assert torch.equal(wide[:, :32], expected)
    assert torch.equal(wide[:, 32:], kept[:, 32:])


def test_compose_of_channels_last_runs_natively(device, launches):
    lora, base, gain = operands((2, 5, 3, 4), device, gain_shape=(1, 5, 1, 1))
    lora, base = (one.to(memory_format=torch.channels_last) for one in (lora, base))
    with dorajit.force_native():
        out, inner = dorajit.fused_dora_forward_and_inner(lora, base, gain, SCALE)
        d_lora, d_base, d_gain = dorajit.compose_backward(lora, inner, gain, SCALE)
    assert torch.equal(out, reference.compose(lora, base, gain, SCALE))
    assert out.is_contiguous(memory_format=torch.channels_last)
    to_lora, to_base, to_gain = reference.gradients(lora, inner, gain, SCALE)
    assert torch.equal(d_lora, to_lora) and torch.equal(d_base, to_base)
    reference.assert_sum_close(d_gain, to_gain, torch.float32)
    assert launches() == {"compose_inner": 1, "backward": 1}


@pytest.mark.parametrize("base_dtype", [torch.float32, torch.float16])
def test_compose_accepts_base_of_another_type(device, base_dtype):
    lora, base, gain = operands((4, 32), device, torch.bfloat16, torch.float32)
    base = base.to(base_dtype)
    out = dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False)
    assert torch.equal(out, reference.compose(lora, base, gain, SCALE))


@pytest.mark.parametrize("shape", [(24,), (4, 1, 6), (1, 4, 6), (2, 2, 6)])
@pytest.mark.parametrize("grad", [False, True])
def test_operands_of_equal_size_but_different_shape_raise(device, shape, grad):
    lora, base, gain = operands((4, 6), device, grad=grad)
    other, row = base.detach().reshape(shape), base.detach().reshape(24)
    for name, call in (
            ("base", lambda: dorajit.fused_dora_compose_autograd(lora, other, gain, SCALE)),
            ("base", lambda: dorajit.fused_dora_forward_and_inner(lora, other, gain, SCALE)),
            ("result", lambda: dorajit.fused_dora_compose_residual(lora, other, gain, SCALE)),
            ("inner", lambda: dorajit.compose_backward(lora, other, gain, SCALE)),
            ("cross", lambda: dorajit.fused_norm_assembly(row[None, None], other, other, SCALE))):
        with pytest.raises(ValueError, match=f"`{name}` has shape"):
            call()


@pytest.mark.parametrize("inplace", [1, "yes", np.True_])
def test_inplace_accepts_any_truth_value(device, inplace):
    lora, base, gain = (torch.randn(size, device=device) for size in ((4, 8), (4, 8), (8,)))
    before = lora.clone()
    assert dorajit.fused_dora_compose(lora, base, gain, 0.5, inplace) is lora
    assert not torch.equal(lora, before)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_tensors_whose_memory_differs_from_their_values_run_in_pytorch(reads, device, launches, dtype):
    # Without gaps, for which alone it would not be served.
    lora = torch.randn(4, 8, dtype=torch.complex64, device=device).to(dtype).conj().imag.as_strided((4, 8), (8, 1))
    base, gain = torch.randn(4, 8, device=device).to(lora.dtype), torch.rand(8, device=device).to(lora.dtype)
    assert lora.is_neg()
    out = dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False)
    assert launches() == {}
    tolerance = 1e-2 if lora.dtype == torch.float16 else 1e-6
    torch.testing.assert_close(out, (gain - 1) * base + gain * (SCALE * lora), rtol=tolerance, atol=tolerance)


@pytest.mark.skipif(_torch_setup.EXCHANGE_API is None, reason="this PyTorch has no C exchange API")
@pytest.mark.parametrize("dtype, count", [(torch.float32, 3), (torch.bfloat16, 0)])
def test_only_types_of_parts_of_complex_numbers_are_asked_for_a_negation(monkeypatch, device, dtype, count):
    asked = []
    is_neg = torch.Tensor.is_neg
    monkeypatch.setattr(torch.Tensor, "is_neg", lambda one: asked.append(one) or is_neg(one))
    _torch_setup.configure(_torch_setup.EXCHANGE_API)
    try:
        _native.compose(*torch.ones(2, 4, 8, device=device, dtype=dtype),
                        torch.ones(8, device=device, dtype=dtype), dtype, SCALE)
    finally:
        monkeypatch.undo()
        _torch_setup.configure(_torch_setup.EXCHANGE_API)
    assert len(asked) == count


@pytest.mark.parametrize("wrong", [None, 3, "tensor", torch.zeros(4, 8, dtype=torch.int32)])
def test_arguments_that_are_no_tensors_raise(reads, device, wrong):
    base, gain = torch.randn(4, 8, device=device), torch.rand(8, device=device)
    with pytest.raises(TypeError, match="lora"):
        dorajit.fused_dora_compose(wrong, base, gain, SCALE)
