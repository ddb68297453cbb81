"""The backward pass of the paper: a Triton kernel for d_lora and d_base, PyTorch's sum for d_gain."""

import torch
import triton
import triton.language as tl

from peers import tuning

# The paper's default list, warp counts pinned per block size, one row per program.
_CONFIGS = [
    triton.Config({"BLOCK_SIZE": block_size}, num_warps=warps)
    for block_size, warps in ((1024, 1), (2048, 2), (4096, 2), (4096, 4), (8192, 4), (16384, 8),
                              (16384, 16))
]


@triton.autotune(configs=_CONFIGS, key=tuning.KEY, do_bench=tuning.benchmark)
@triton.jit(do_not_specialize=tuning.UNSPECIALIZED)
def _backward_kernel(d_out, gain, d_lora, d_base, scale, num_cols, row_bucket,
                     BLOCK_SIZE: tl.constexpr):
    cols = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = cols < num_cols
    offsets = tl.program_id(0).to(tl.int64) * num_cols + cols
    g = tl.load(gain + cols, mask=mask, other=0).to(tl.float32)
    grad = tl.load(d_out + offsets, mask=mask, other=0).to(tl.float32)
    tl.store(d_lora + offsets, g * scale * grad, mask=mask)
    tl.store(d_base + offsets, (g - 1) * grad, mask=mask)


def backward(d_out, inner, gain, scale, d_lora, d_base, d_gain, product):
    """`product` is a workspace like `inner`."""
    rows, cols = d_out.shape
    _backward_kernel[lambda meta: (rows, triton.cdiv(cols, meta["BLOCK_SIZE"]))](
        d_out, gain, d_lora, d_base, scale, cols, tuning.row_bucket(rows))
    # (inner * d_out).sum(dim=0) with its outputs given: the product is rounded to the activations'
    # type, as PyTorch's two operations do, and the sum accumulates in fp32 inside its kernel.
    torch.mul(inner, d_out, out=product)
    torch.sum(product, dim=0, dtype=d_gain.dtype, out=d_gain)


def compile_backward(dtype, gain_dtype):
    tuning.compile_configs(_backward_kernel, dtype, gain_dtype, dtype, dtype, 0.5, 16, 1)


def chosen_config():
    """The config of the last call of backward."""
    return str(_backward_kernel.best_config)
