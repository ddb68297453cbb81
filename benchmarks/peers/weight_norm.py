"""The row norms of W + s B A in Triton: B A tile by tile on the tensor cores, W added, squared and summed.

There are two kernels; the fastest config of both is used for a problem. One loads tiles by pointers, the other by
tensor descriptors, which use TMA on Hopper. A program processes some rows and a part of the columns; a second
kernel adds the parts.

Tensor cores truncate what they accumulate, so the error of one accumulator grows with the rank. With `in_blocks`
the products of each step of at most 64 of the rank are added in fp32 instead, as dorajit adds them.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from peers import tuning

_PARTS = (1, 2, 4, 8)
_TILES = ((128, 128, 64, 8, 3), (128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (64, 128, 64, 4, 4), (64, 256, 32, 4, 3),
          (64, 64, 64, 4, 4), (64, 128, 16, 4, 3), (64, 256, 16, 8, 3), (128, 128, 16, 8, 3), (32, 256, 16, 4, 4))
_KEY = ["rows", "columns", "rank", "IN_BLOCKS"]


def _configs(hook=None):
    return [triton.Config({"ROWS": rows, "COLUMNS": columns, "STEP": step}, num_warps=warps, num_stages=stages,
                          pre_hook=hook)
            for rows, columns, step, warps, stages in _TILES]


@triton.autotune(_configs(), key=_KEY, do_bench=tuning.benchmark)
@triton.jit
def _by_pointers(weight, a, b, parts, rows, columns, rank, scale, one, num_parts, IS_EVEN: tl.constexpr,
                 IN_BLOCKS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    sums = tl.zeros((ROWS,), tl.float32)
    for tile in range(tl.program_id(1), tl.cdiv(columns, COLUMNS), num_parts):
        column = tile * COLUMNS + tl.arange(0, COLUMNS)
        products = tl.zeros((ROWS, COLUMNS), tl.float32)
        for start in range(0, rank, STEP):
            k = start + tl.arange(0, STEP)
            at_b = b + row[:, None] * rank + k[None, :]
            at_a = a + k[:, None] * columns + column[None, :]
            if IS_EVEN:
                left, right = tl.load(at_b), tl.load(at_a)
            else:
                left = tl.load(at_b, mask=(row[:, None] < rows) & (k[None, :] < rank), other=0.0)
                right = tl.load(at_a, mask=(k[:, None] < rank) & (column[None, :] < columns), other=0.0)
            # Without the factor Triton makes one accumulator of the sum.
            products = products + one * tl.dot(left, right) if IN_BLOCKS else tl.dot(left, right, products)
        at = weight + row[:, None] * columns + column[None, :]
        if IS_EVEN:
            found = tl.load(at)
        else:
            found = tl.load(at, mask=(row[:, None] < rows) & (column[None, :] < columns), other=0.0)
        value = found.to(tl.float32) + scale * products
        sums += tl.sum(value * value, 1)
    tl.store(parts + tl.program_id(1) * rows + row, sums, mask=row < rows)


def _set_boxes(given):
    rows, columns, step = given["ROWS"], given["COLUMNS"], given["STEP"]
    given["weight"].block_shape = [rows, columns]
    given["a"].block_shape = [step, columns]
    given["b"].block_shape = [rows, step]


@triton.autotune(_configs(_set_boxes), key=_KEY, do_bench=tuning.benchmark)
@triton.jit
def _by_descriptors(weight, a, b, parts, rows, columns, rank, scale, one, num_parts, IN_BLOCKS: tl.constexpr,
                    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    first = tl.program_id(0) * ROWS
    row = first.to(tl.int64) + tl.arange(0, ROWS)
    sums = tl.zeros((ROWS,), tl.float32)
    for tile in range(tl.program_id(1), tl.cdiv(columns, COLUMNS), num_parts):
        products = tl.zeros((ROWS, COLUMNS), tl.float32)
        for start in range(0, rank, STEP):
            left, right = b.load([first, start]), a.load([start, tile * COLUMNS])
            products = products + one * tl.dot(left, right) if IN_BLOCKS else tl.dot(left, right, products)
        value = weight.load([first, tile * COLUMNS]).to(tl.float32) + scale * products
        sums += tl.sum(value * value, 1)
    tl.store(parts + tl.program_id(1) * rows + row, sums, mask=row < rows)


@triton.jit
def _add_parts(parts, norm, rows, num_parts, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(num_parts):
        total += tl.load(parts + part * rows + row, mask=row < rows, other=0.0)
    tl.store(norm + row, tl.sqrt_rn(total), mask=row < rows)


def ways(weight, a, b):
    """The possible launches for these matrices: (kernel, number of parts)."""
    kinds = ["pointers"]
    if all(one.stride(0) * one.element_size() % 16 == 0 for one in (weight, a, b)):
        kinds.append("descriptors")
    return [(kind, parts) for kind in kinds for parts in _PARTS]


def weight_norm(way, weight, a, b, scale, norm, in_blocks=False):
    """Writes the norms, float32, of the rows of weight + scale * b @ a, of contiguous 16-bit matrices."""
    kind, num_parts = way
    rows, columns, rank = *weight.shape, a.shape[0]
    parts = torch.empty(num_parts, rows, dtype=torch.float32, device=weight.device)

    def grid(config):
        return triton.cdiv(rows, config["ROWS"]), num_parts
    if kind == "pointers":
        is_even = rows % 128 == 0 and columns % 256 == 0 and rank % 64 == 0
        _by_pointers[grid](weight, a, b, parts, rows, columns, rank, scale, 1.0, num_parts, IS_EVEN=is_even,
                           IN_BLOCKS=in_blocks)
    else:
        boxes = [TensorDescriptor.from_tensor(one, [16, 16]) for one in (weight, a, b)]
        _by_descriptors[grid](*boxes, parts, rows, columns, rank, scale, 1.0, num_parts, IN_BLOCKS=in_blocks)
    block = 128
    _add_parts[triton.cdiv(rows, block),](parts, norm, rows, num_parts, BLOCK=block)
    return norm
