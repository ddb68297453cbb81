"""The weights of bitsandbytes' 4-bit layers, dequantized by dorajit's kernel."""

import os
import subprocess

import pytest
import torch

from dorajit.layers import dequantization
from dorajit.tools import program

functional = pytest.importorskip("bitsandbytes.functional", reason="bitsandbytes is not installed")


def quantized(rows, cols, dtype, kind, nested, block, device="cuda"):
    torch.manual_seed(0)
    weight = torch.randn(rows, cols, device=device, dtype=dtype) * 0.02
    weight[0, :block] = 0
    return functional.quantize_4bit(weight, blocksize=block, quant_type=kind, compress_statistics=nested)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_of_other_layouts_are_left_to_bitsandbytes():
    data, state = quantized(64, 64, torch.bfloat16, "nf4", True, 64)
    assert dequantization.weight_of(data.t(), state) is None
    state.absmax = torch.cat([state.absmax, state.absmax])[1:65]  # begins within a word
    assert dequantization.weight_of(data, state) is None


def test_weights_on_a_cpu_are_left_to_bitsandbytes():
    assert dequantization.weight_of(*quantized(64, 64, torch.bfloat16, "nf4", False, 64, "cpu")) is None


@pytest.mark.skipif("DORAJIT_NVRTC" not in os.environ, reason="needs NVRTC")
@pytest.mark.parametrize("nested", [False, True])
def test_kernels_compile_without_spills(nested, tmp_path):
    kernel = dequantization._kernel(nested)
    (tmp_path / "kernel.json").write_text(kernel.to_json(), encoding="utf-8")
    sizes = {"rows": 4096, "cols": 4096, "bytes": 2**23, "columns": 1, "blocks": 2**18, "is_fp4": 0, "log2_block": 6,
             "log2_group": 8} | ({"entries": 256, "groups": 1024, "one": 1} if nested else {})
    subprocess.run([program.find(), "prewarm", "--arch", "sm_80,sm_90,sm_100", "--kernel", tmp_path / "kernel.json",
                    "--compile-only", "--refuse-spills", "--with", ",".join(f"{name}={size}" for name, size in sizes.items())],
                   env={**os.environ, "DORAJIT_CACHE_DIR": str(tmp_path)}, check=True)
