"""The backward pass in Triton with one pass over the activations.

The first kernel writes d_lora and d_base and sums inner * d_out over its rows into a row of fp32
partial sums; the second kernel adds these. Tuning measures both together, which triton.autotune
cannot do: few rows per program make the first kernel faster and the second slower.
"""

import torch
import triton
import triton.language as tl

from peers import tuning

# Columns and rows that a program holds at once, warps, and stages of the software pipeline. 8 to 32
# elements per thread balance bytes in flight and registers.
_TILES = (
    (128, 8, 2, 1), (256, 4, 2, 1), (256, 8, 4, 1), (512, 4, 4, 1), (512, 8, 4, 1),
    (1024, 2, 4, 1), (1024, 4, 4, 1), (1024, 4, 8, 1), (2048, 1, 8, 1), (2048, 2, 8, 1),
    (512, 4, 4, 3), (1024, 2, 4, 3), (1024, 4, 8, 3),
)
_ROWS_PER_PROGRAM = (8, 16, 32, 64, 128, 256)
# Numbers of programs: from two per multiprocessor of a large GPU to so many that the last wave hardly matters.
_PROGRAMS_WANTED = (264, 1024, 4096)
# Columns per program, rows held at once, warps of the second kernel.
_FINISHES = ((32, 64, 4), (64, 64, 8), (128, 32, 8), (32, 128, 8))

_chosen = {}


@triton.jit(do_not_specialize=["num_rows", "rows_per_program"])
def _partial_sums_kernel(d_out, inner, gain, d_lora, d_base, partials, scale, num_rows, num_cols,
                         rows_per_program, BLOCK_SIZE: tl.constexpr, TILE_ROWS: tl.constexpr,
                         STAGES: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    col_mask = cols < num_cols
    g = tl.load(gain + cols, mask=col_mask, other=0).to(tl.float32)
    to_lora = (g * scale)[None, :]
    to_base = (g - 1)[None, :]
    sums = tl.zeros([TILE_ROWS, BLOCK_SIZE], tl.float32)
    first_row = tl.program_id(1).to(tl.int64) * rows_per_program
    for start in tl.range(0, rows_per_program, TILE_ROWS, num_stages=STAGES):
        rows = first_row + start + tl.arange(0, TILE_ROWS)
        offsets = rows[:, None] * num_cols + cols[None, :]
        mask = (rows < num_rows)[:, None] & col_mask[None, :]
        grad = tl.load(d_out + offsets, mask=mask, other=0).to(tl.float32)
        kept = tl.load(inner + offsets, mask=mask, other=0).to(tl.float32)
        tl.store(d_lora + offsets, to_lora * grad, mask=mask)
        tl.store(d_base + offsets, to_base * grad, mask=mask)
        sums += kept * grad
    tl.store(partials + tl.program_id(1).to(tl.int64) * num_cols + cols, tl.sum(sums, axis=0),
             mask=col_mask)


@triton.jit(do_not_specialize=["num_partials"])
def _finish_kernel(partials, d_gain, num_partials, num_cols, BLOCK_SIZE: tl.constexpr,
                   TILE_ROWS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    col_mask = cols < num_cols
    sums = tl.zeros([TILE_ROWS, BLOCK_SIZE], tl.float32)
    for start in range(0, num_partials, TILE_ROWS):
        rows = start + tl.arange(0, TILE_ROWS)
        mask = (rows < num_partials)[:, None] & col_mask[None, :]
        sums += tl.load(partials + rows[:, None] * num_cols + cols[None, :], mask=mask, other=0)
    tl.store(d_gain + cols, tl.sum(sums, axis=0), mask=col_mask)


def workspace_shape(rows, cols):
    """The size of the fp32 partial sums, enough for every config."""
    return triton.cdiv(rows, min(_ROWS_PER_PROGRAM)), cols


def backward(d_out, inner, gain, scale, d_lora, d_base, d_gain, partials):
    operands = (d_out, inner, gain, scale, d_lora, d_base, d_gain, partials)
    key = _key(d_out, gain)
    if key not in _chosen:
        _chosen[key] = _tune(operands)
    _launch(*_chosen[key], *operands)


def _key(d_out, gain):
    rows, cols = d_out.shape
    return tuning.row_bucket(rows), cols, d_out.dtype, gain.dtype


def _launch(first, finish, d_out, inner, gain, scale, d_lora, d_base, d_gain, partials):
    rows, cols = d_out.shape
    (block_size, tile_rows, warps, stages), rows_per_program = first
    num_partials = triton.cdiv(rows, rows_per_program)
    sums = d_gain if num_partials == 1 else partials
    _partial_sums_kernel[(triton.cdiv(cols, block_size), num_partials)](
        d_out, inner, gain, d_lora, d_base, sums, scale, rows, cols, rows_per_program,
        BLOCK_SIZE=block_size, TILE_ROWS=tile_rows, STAGES=stages, num_warps=warps)
    if num_partials > 1:
        block_size, tile_rows, warps = finish
        _finish_kernel[(triton.cdiv(cols, block_size),)](
            partials, d_gain, num_partials, cols, BLOCK_SIZE=block_size, TILE_ROWS=tile_rows,
            num_warps=warps)


def _tune(operands):
    rows, cols = operands[0].shape
    first = _fastest(((candidate, _FINISHES[0]) for candidate in _candidates(rows, cols)),
                     operands)[0]
    return _fastest(((first, finish) for finish in _FINISHES), operands)


def _fastest(choices, operands):
    return min(choices, key=lambda choice: tuning.benchmark(
        lambda: _launch(*choice, *operands), quantiles=(0.5,)))


def _candidates(rows, cols):
    """For each tile and each wanted number of programs, the config with the most rows per program."""
    for tile in _TILES:
        fitting = [count for count in _ROWS_PER_PROGRAM if count >= tile[1]]
        column_blocks = triton.cdiv(cols, tile[0])
        for count in {
            max((count for count in fitting if column_blocks * triton.cdiv(rows, count) >= wanted),
                default=fitting[0])
            for wanted in _PROGRAMS_WANTED
        }:
            yield tile, count


def compile_backward(dtype, gain_dtype):
    for block_size, tile_rows, warps, stages in _TILES:
        _partial_sums_kernel.warmup(
            dtype, dtype, gain_dtype, dtype, dtype, torch.float32, 0.5, 1, 16, 8,
            BLOCK_SIZE=block_size, TILE_ROWS=tile_rows, STAGES=stages, num_warps=warps, grid=(1,))
    for block_size, tile_rows, warps in _FINISHES:
        _finish_kernel.warmup(torch.float32, gain_dtype, 2, 16, BLOCK_SIZE=block_size,
                              TILE_ROWS=tile_rows, num_warps=warps, grid=(1,))


def chosen_config(d_out, gain):
    """The config of backward for these operands."""
    return str(_chosen.get(_key(d_out, gain)))
