"""compose and compose_inner in Triton: one row per program, a block of its columns."""

import triton
import triton.language as tl

from peers import tuning

# The paper's default list. Its warp counts are fixed per block size; one row per program won 96%
# of its tunings and is the only choice in the list.
_CONFIGS = [
    triton.Config({"BLOCK_SIZE": block_size}, num_warps=warps)
    for block_size, warps in ((512, 1), (1024, 2), (2048, 8), (4096, 4), (4096, 8), (8192, 4),
                              (8192, 8))
]


@triton.autotune(configs=_CONFIGS, key=tuning.KEY, do_bench=tuning.benchmark)
@triton.jit(do_not_specialize=tuning.UNSPECIALIZED)
def _compose_kernel(lora, base, gain, out, scale, num_cols, row_bucket, BLOCK_SIZE: tl.constexpr):
    cols = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = cols < num_cols
    offsets = tl.program_id(0).to(tl.int64) * num_cols + cols
    g = tl.load(gain + cols, mask=mask, other=0).to(tl.float32)
    scaled_lora = scale * tl.load(lora + offsets, mask=mask, other=0).to(tl.float32)
    b = tl.load(base + offsets, mask=mask, other=0).to(tl.float32)
    tl.store(out + offsets, (g - 1) * b + g * scaled_lora, mask=mask)


@triton.autotune(configs=_CONFIGS, key=tuning.KEY, do_bench=tuning.benchmark)
@triton.jit(do_not_specialize=tuning.UNSPECIALIZED)
def _compose_inner_kernel(lora, base, gain, out, inner, scale, num_cols, row_bucket,
                          BLOCK_SIZE: tl.constexpr):
    cols = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = cols < num_cols
    offsets = tl.program_id(0).to(tl.int64) * num_cols + cols
    g = tl.load(gain + cols, mask=mask, other=0).to(tl.float32)
    scaled_lora = scale * tl.load(lora + offsets, mask=mask, other=0).to(tl.float32)
    b = tl.load(base + offsets, mask=mask, other=0).to(tl.float32)
    tl.store(out + offsets, (g - 1) * b + g * scaled_lora, mask=mask)
    tl.store(inner + offsets, scaled_lora + b, mask=mask)


def _grid(rows, cols):
    return lambda meta: (rows, triton.cdiv(cols, meta["BLOCK_SIZE"]))


def compose(lora, base, gain, scale, out):
    rows, cols = lora.shape
    _compose_kernel[_grid(rows, cols)](lora, base, gain, out, scale, cols, tuning.row_bucket(rows))


def compose_inner(lora, base, gain, scale, out, inner):
    rows, cols = lora.shape
    _compose_inner_kernel[_grid(rows, cols)](lora, base, gain, out, inner, scale, cols,
                                             tuning.row_bucket(rows))


def compile_compose(dtype, gain_dtype):
    tuning.compile_configs(_compose_kernel, dtype, dtype, gain_dtype, dtype, 0.5, 16, 1)


def compile_compose_inner(dtype, gain_dtype):
    tuning.compile_configs(_compose_inner_kernel, dtype, dtype, gain_dtype, dtype, dtype, 0.5, 16,
                           1)


def chosen_config():
    """The config of the last call of compose."""
    return str(_compose_kernel.best_config)


def chosen_inner_config():
    """The config of the last call of compose_inner."""
    return str(_compose_inner_kernel.best_config)
