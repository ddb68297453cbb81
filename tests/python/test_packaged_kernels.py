"""The kernels that the package describes as own kernels: 4-bit weights of bitsandbytes, copies of transposed matrices."""

import os
import subprocess

import pytest
import torch
from dorajit import program
from dorajit.layers import dequantization
from dorajit.norms import transposed
from reference import needs_gpu

functional = pytest.importorskip("bitsandbytes.functional", reason="bitsandbytes is not installed")


def quantized(rows, cols, dtype, kind, nested, block, device="cuda"):
    torch.manual_seed(0)
    weight = torch.randn(rows, cols, device=device, dtype=dtype) * 0.02
    weight[0, :block] = 0
    return functional.quantize_4bit(weight, blocksize=block, quant_type=kind, compress_statistics=nested)


@needs_gpu
@pytest.mark.parametrize("rows, cols, block", [(64, 64, 64), (4096, 1024, 64), (40, 24, 32), (7, 9, 64), (130, 513, 128),
                                               (3, 70000, 4096)])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_bits_are_those_of_bitsandbytes(rows, cols, block, kind, nested, dtype):
    data, state = quantized(rows, cols, dtype, kind, nested, block)
    found, wanted = dequantization.weight_of(data, state), functional.dequantize_4bit(data, state)
    assert found is not None and found.shape == wanted.shape and found.dtype is wanted.dtype
    bits = torch.int32 if dtype is torch.float32 else torch.int16
    assert torch.equal(found.view(bits), wanted.view(bits))  # also the sign of zeros


@needs_gpu
def test_tensors_of_other_layouts_are_left_to_bitsandbytes():
    data, state = quantized(64, 64, torch.bfloat16, "nf4", True, 64)
    assert dequantization.weight_of(data.t(), state) is None
    state.absmax = torch.cat([state.absmax, state.absmax])[1:65]  # begins within a word
    assert dequantization.weight_of(data, state) is None


def test_weights_on_a_cpu_are_left_to_bitsandbytes():
    assert dequantization.weight_of(*quantized(64, 64, torch.bfloat16, "nf4", False, 64, "cpu")) is None


@needs_gpu
@pytest.mark.parametrize("rows, cols", [(1, 1), (7, 9), (64, 64), (768, 5025), (130, 513), (3, 70000), (5000, 130)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_copies_of_transposed_matrices_have_the_elements_and_zeros_behind(rows, cols, dtype, monkeypatch):
    monkeypatch.setattr(torch.nn.functional, "pad", None)  # the kernel runs, not PyTorch
    matrix = torch.randn(cols, rows, device="cuda").to(dtype).t()
    missing = -cols % 8
    found = transposed.with_rows(matrix)
    assert found.is_contiguous() and found.dtype is dtype
    assert torch.equal(found, torch.cat([matrix, matrix.new_zeros(rows, missing)], 1))


@needs_gpu
@pytest.mark.parametrize("matrix", [lambda one: one[:, 1:], lambda one: one[1:], lambda one: one.t()[::2]])
def test_views_of_transposed_matrices_are_copied(matrix):
    matrix = matrix(torch.randn(33, 70, device="cuda").t())
    assert torch.equal(transposed.with_rows(matrix)[:, :matrix.shape[1]], matrix)


_PACKED = {"rows": 4096, "cols": 4096, "bytes": 2**23, "columns": 1, "blocks": 2**18, "is_fp4": 0, "log2_block": 6,
           "log2_group": 8}
_KERNELS = {
    "dequantize_4bit": (lambda: dequantization._kernel(False), _PACKED),
    "dequantize_4bit_nested": (lambda: dequantization._kernel(True), _PACKED | {"entries": 256, "groups": 1024, "one": 1}),
    "transpose": (transposed._kernel, {"cols": 50257, "rows": 768, "pitch": 50264}),
}


@pytest.mark.skipif("DORAJIT_NVRTC" not in os.environ, reason="needs NVRTC")
@pytest.mark.parametrize("name", _KERNELS)
def test_kernels_compile_without_spills(name, tmp_path):
    make, sizes = _KERNELS[name]
    (tmp_path / "kernel.json").write_text(make().to_json(), encoding="utf-8")
    subprocess.run([program.find(), "prewarm", "--arch", "sm_80,sm_90,sm_100", "--kernel", tmp_path / "kernel.json",
                    "--compile-only", "--refuse-spills", "--with", ",".join(f"{name}={size}" for name, size in sizes.items())],
                   env={**os.environ, "DORAJIT_CACHE_DIR": str(tmp_path)}, check=True)
