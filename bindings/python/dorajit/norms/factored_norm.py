"""Algorithm 1 of arXiv:2603.22276 for the norms of the rows of W + s B A. It is the reference, and runs where
the kernel is not used (dorajit.norms.norm_kernel).

    ||W + s B A||^2 = ||W||^2 + 2 s <W, B A> + s^2 ||B A||^2,   each by rows
    <W, B A> = (B * U) 1 with U = W A^T,    ||B A||^2 = (B G * B) 1 with G = A A^T

B A is never in memory. Temporaries stay under a budget: rows and columns are processed in chunks.
"""

from typing import NamedTuple

import torch

from dorajit.norms import norm_kernel, precision
from dorajit.operations import run
from dorajit.operations.table import operations

_ALIGNED = 64
_MOST_PIECES = 16
_norm_assembly = operations["norm_assembly"]


def norms(matrix, a, b, scale, budget, dtype, squared=False):
    """The norms of the rows of matrix + scale * b @ a, or their squares, which rounding may make negative. All three
    are plain matrices."""
    with precision.full(matrix.device.type):
        square, cross, ba = terms = sums(matrix, a, b, scale, budget, dtype)
        if squared:
            return square.add_(cross, alpha=2 * scale).add_(ba, alpha=scale * scale)
        return run.outputs(_norm_assembly, terms, (scale,))[0]


class Chunks(NamedTuple):
    """How many rows and columns of the weight are processed at a time."""

    rows: int
    columns: int


def chunks(out, columns, budget, cost):
    """The Chunks that the budget allows: as many rows as possible, then as many columns.

    Args:
        budget: bytes.
        cost: (rows, columns) of a chunk -> bytes of all temporaries.
    """
    rows = out
    while rows > _ALIGNED and cost(rows, min(columns, _ALIGNED)) > budget:
        rows = max(_ALIGNED, -(-rows // 2 // _ALIGNED) * _ALIGNED)
    fixed = cost(rows, 0)
    at_once = (budget - fixed) // max(cost(rows, 1) - fixed, 1)
    if at_once < columns:
        at_once = max(at_once // _ALIGNED, 1) * _ALIGNED
    return Chunks(max(rows, 1), max(min(at_once, columns), 1))


def _cost_of_squares(matrix, dtype):
    return lambda rows, columns: dtype.itemsize * (rows * columns + matrix.shape[0] + rows)


def _cost_of_low_rank_terms(matrix, a, b, dtype, mixed):
    rank, wide = a.shape[0], dtype.itemsize
    copy, copy_a, copy_b = (0 if one.dtype == dtype else wide for one in (matrix, a, b))
    def cost(rows, columns):
        if mixed:
            product = (precision.MIXED_RESULT_BYTES * rows * rank
                       + (precision.MIXED_FACTOR_BYTES if copy_a == 0 else copy_a) * rank * columns)
        else:
            product = wide * rows * rank + copy * rows * columns + copy_a * rank * columns
        return product + copy_b * rows * rank + wide * (rank * rank + 3 * matrix.shape[0])
    return cost


def _bytes_of_gram(a, dtype):
    return a.shape[0] * a.shape[0] * dtype.itemsize


def _pieces(a, dtype, budget):
    """How many temporaries of the size of A A^T fit in a sixteenth of the budget; 1 on a CPU, which needs no more."""
    if not a.is_cuda:
        return 1
    return max(1, min(_MOST_PIECES, budget // 16 // max(_bytes_of_gram(a, dtype), 1)))


def sums(matrix, a, b, scale, budget, dtype):
    """The three terms of the norm's square, per row: ||W||^2, <W, B A>, ||B A||^2.

    Returns:
        Three tensors of type `dtype` with one element per row.
    """
    out, columns = matrix.shape
    squares = norm_kernel.norms(matrix, a, b, 0.0, budget, dtype, squared=True)
    if squares is None and matrix.is_cuda:  # converts as it reads
        squares = torch.linalg.vector_norm(matrix, dim=1, dtype=dtype).square_()
    elif squares is None:
        squares = _squares(matrix, dtype, chunks(out, columns, budget, _cost_of_squares(matrix, dtype)))
    if scale == 0 or not a.shape[0] or not columns:
        return squares, torch.zeros_like(squares), torch.zeros_like(squares)
    cross, ba = torch.empty_like(squares), torch.empty_like(squares)
    mixed = dtype is torch.float32 and precision.is_mixed(matrix, a)
    pieces = _pieces(a, dtype, budget)
    aside = pieces * _bytes_of_gram(a, dtype) if mixed or pieces > 1 else 0
    size = chunks(out, columns, budget - aside, _cost_of_low_rank_terms(matrix, a, b, dtype, mixed))
    gram = _gram(a, dtype, size.columns, pieces, mixed)
    for rows in zip(*(_parts(one, size.rows, 0) for one in (matrix, b, cross, ba))):
        _low_rank_terms(*rows, a, gram, dtype, size.columns, mixed)
    return squares, cross, ba


def _parts(tensor, size, dim):
    """The tensor in parts of `size` rows or columns. On small weights the number of operations determines the time,
    so a single part is not split."""
    return (tensor,) if tensor.shape[dim] <= size else tensor.split(size, dim)


def _squares(matrix, dtype, size):
    sums = matrix.new_zeros(matrix.shape[0], dtype=dtype)
    for row in range(0, matrix.shape[0], size.rows):
        block, into = matrix[row:row + size.rows], sums[row:row + size.rows]
        for column in range(0, matrix.shape[1], size.columns):
            part = block[:, column:column + size.columns]
            # Only one temporary: a copy in the wide type is squared in place.
            part = part.to(dtype).square_() if part.dtype != dtype else part.square()
            into += part.sum(dim=1)
    return sums


def _low_rank_terms(matrix, b, cross, ba, a, gram, dtype, columns, mixed):
    """Writes <W, B A> and ||B A||^2 of some rows into cross and ba."""
    b = b.to(dtype)
    u = _product(matrix, a, dtype, columns, mixed)
    torch.sum(u.mul_(b), dim=1, out=cross)
    torch.sum(torch.mm(b, gram, out=u).mul_(b), dim=1, out=ba)


def _gram(a, dtype, columns, pieces, mixed):
    """a @ a.T in the type of sums. The columns are cut into `pieces`, whose products run in parallel."""
    gram = None
    for part in _parts(a, columns, 1):
        if mixed and part.dtype != dtype:
            found = precision.mixed_product(part, part.T)
        else:
            found = _gram_in_pieces(part.to(dtype), min(pieces, part.shape[1] // _ALIGNED))
        gram = found if gram is None else gram.add_(found)
    return gram


def _gram_in_pieces(a, pieces):
    if pieces <= 1:
        return _multiplied(a, a.T)
    # One product has few results, each a long sum, and would leave most of a GPU idle.
    split = a.shape[1] // pieces
    batch = a[:, :split * pieces].unflatten(1, (pieces, split)).transpose(0, 1)
    gram, rest = torch.bmm(batch, batch.transpose(1, 2)).sum(0), a[:, split * pieces:]
    return gram.addmm_(rest, rest.T) if rest.shape[1] else gram


def _product(block, a, dtype, columns, mixed):
    """block @ a.T in the type of sums."""
    u = None
    for left, right in zip(_parts(block, columns, 1), _parts(a, columns, 1)):
        if mixed:
            found = precision.mixed_product(left, right.T)
            u = found if u is None else u.add_(found)
        elif u is None:
            u = _multiplied(left.to(dtype), right.to(dtype).T)
        else:
            u.addmm_(left.to(dtype), right.to(dtype).T)
    return u


def _multiplied(left, right):
    """left @ right in a tensor that may be overwritten: selective checkpointing may save the result of torch.mm."""
    return torch.mm(left, right, out=left.new_empty(left.shape[0], right.shape[1]))
