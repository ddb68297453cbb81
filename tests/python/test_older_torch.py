"""Tensors of a PyTorch without DLPack's C exchange API are read through Python attributes."""

import pytest
import torch

import dorajit
from dorajit import _native, _torch_setup, testing

SCALE = 0.5


@pytest.fixture(params=["exchange", "attributes"])
def way(request):
    if request.param == "exchange" and _torch_setup.EXCHANGE_API is None:
        pytest.skip("this PyTorch has no C exchange API")
    _torch_setup.configure(_torch_setup.EXCHANGE_API if request.param == "exchange" else None)
    yield request.param
    _torch_setup.configure(_torch_setup.EXCHANGE_API)


def expected(lora, base, gain):
    return (gain - 1) * base + gain * (SCALE * lora)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_every_element_type_runs_natively(way, device, dtype):
    lora, base = (torch.randn(3, 40, device=device).to(dtype) for _ in range(2))
    gain = torch.rand(40, device=device, dtype=torch.promote_types(dtype, torch.float32)) + 0.5
    before = testing.launch_counts()
    out, inner = dorajit.fused_dora_forward_and_inner(lora, base, gain, SCALE)
    d_lora, d_base, d_gain = dorajit.compose_backward(out, inner, gain, SCALE)
    after = testing.launch_counts()
    assert after["compose_inner"] - before["compose_inner"] == 1
    assert after["backward"] - before["backward"] == 1
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-6)
    wide = [tensor.double() for tensor in (lora, base, gain)]
    torch.testing.assert_close(out.double(), expected(*wide), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(d_base.double(), (wide[2] - 1) * out.double(), rtol=tolerance, atol=tolerance)
    assert d_lora.dtype == dtype and d_gain.dtype == gain.dtype


def test_strides_and_offsets_are_read(way, device):
    rows = torch.randn(8, 100, device=device)
    lora, base, gain = rows[1:5, 10:50], rows[4:8, 30:70], rows[0, 60:100]
    out = dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False)
    torch.testing.assert_close(out, expected(lora, base, gain))


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_tensors_whose_memory_differs_from_their_values_run_in_pytorch(way, device, dtype):
    # Without gaps, for which alone it would not be served.
    lora = torch.randn(4, 8, dtype=torch.complex64, device=device).to(dtype).conj().imag.as_strided((4, 8), (8, 1))
    base, gain = torch.randn(4, 8, device=device).to(lora.dtype), torch.rand(8, device=device).to(lora.dtype)
    assert lora.is_neg()
    before = testing.launch_counts()
    out = dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False)
    assert testing.launch_counts() == before
    tolerance = 1e-2 if lora.dtype == torch.float16 else 1e-6
    torch.testing.assert_close(out, expected(lora, base, gain), rtol=tolerance, atol=tolerance)


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
def test_arguments_that_are_no_tensors_raise(way, device, wrong):
    base, gain = torch.randn(4, 8, device=device), torch.rand(8, device=device)
    with pytest.raises(TypeError, match="lora"):
        dorajit.fused_dora_compose(wrong, base, gain, SCALE)
