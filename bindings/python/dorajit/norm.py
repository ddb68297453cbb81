"""The norms of the rows of W + scale B A, without B A in memory.

On a GPU one kernel multiplies, adds and sums tile by tile, and cancels nothing (docs/numerics.md). What it
does not serve, or serves more slowly, follows algorithm 1 of arXiv:2603.22276:

    ||W + s B A||^2 = ||W||^2 + 2 s <W, B A> + s^2 ||B A||^2,   each by rows
    <W, B A> = (B * U) 1 with U = W A^T,    ||B A||^2 = (B G * B) 1 with G = A A^T
"""

import functools
import math
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from dorajit import checks, eligibility, errors, norm_cache, precision, run, thresholds
from dorajit.control import state
from dorajit.eligibility import OPERATOR
from dorajit.operation import operations
from dorajit.sharded import engines

_ALIGNED = 64
_MOST_PIECES = 16
_norm_assembly, _weight_norm = operations["norm_assembly"], operations["weight_norm"]
_HALVES = frozenset({torch.float16, torch.bfloat16})
_TYPES = _HALVES | {torch.float32, torch.float64}
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_MOST_RANK = 1024
# Beyond it products of float32 factors, which no tensor core takes, cost more than the memory's passes
# that the kernel saves (docs/performance.md).
_MOST_RANK_WITHOUT_TENSOR_CORES = 16


def weight_norm(weight: Tensor, lora_A: Tensor, lora_B: Tensor, scale: float, *,
                chunk_mb: Optional[int] = None, frozen: Optional[Tensor] = None) -> Tensor:
    """The L2 norms of the rows of weight + scale * lora_B @ lora_A.

    Sums are float32 (float64 if an argument is that), whatever the types of the arguments and the
    autocast and TF32 settings of the process. Temporaries stay under the budget, B A is never
    formed. The result is a constant for autograd, as DoRA wants it.

    Args:
        weight: [out, in], of any strides; or that of a convolution, [out, in, ...].
        lora_A: [rank, in], or that of a convolution, [rank, in, ...].
        lora_B: [out, rank], or [out, rank, 1, ...].
        scale: a float. With 0, only the weight is read.
        chunk_mb: the budget; None for get_dora_norm_threshold_mb(), 256 unless set. What cannot be
            less: rank x rank numbers and a chunk of 64 rows by 64 columns.
        frozen: the tensor under which the squared norms of the weight are kept, for callers whose
            weight is a new view of it on each call; the weight itself if None.

    Any argument may be a DTensor (docs/sharding.md). The call then is a collective one: each rank
    sums over its part of the weight, which is never gathered.

    Returns:
        [out], float32 or float64. That of a row with a NaN or an infinity is not finite. Of a DTensor
        a DTensor, sharded as its rows are.

    Raises:
        TypeError: an argument is no tensor of real floating point numbers; scale is no float.
        ValueError: shapes or devices do not go together; chunk_mb is no positive whole number; a
            parameter that FSDP or ZeRO-3 has taken apart is not gathered.
    """
    operands = weight, lora_A, lora_B
    if eligibility.constant_route(*operands) is OPERATOR:
        return torch.ops.dorajit.factored_norm(weight.detach(), lora_A.detach(), lora_B.detach(),
                                               scale, chunk_mb)
    return _computed(*operands, scale, chunk_mb, weight if frozen is None else frozen)


def _computed(weight, lora_A, lora_B, scale, chunk_mb, frozen):
    scale = checks.scale("weight_norm", scale)
    budget = thresholds.norm_bytes(chunk_mb)
    _check(weight, lora_A, lora_B)
    if any(map(engines.is_dtensor, (weight, lora_A, lora_B))):
        from dorajit.sharded import dtensor_norm
        return dtensor_norm.weight_norm(weight, lora_A, lora_B, scale, budget, frozen)
    matrix, a, b = (one.detach().flatten(1) for one in (weight, lora_A, lora_B))
    if _is_for_kernel(matrix, a, b):
        try:
            made = run.launch(_weight_norm, (matrix, a, b, None), (sum_type(matrix, a, b), None, None), scale)
        except errors.CaptureUnsafeError:  # not compiled yet: PyTorch's operations may be captured
            made = None
        if made is not None:
            return made[0]
    with precision.full(matrix.device.type):
        return assembled(sums(matrix, a, b, scale, budget, frozen), scale)


def _is_for_kernel(matrix, a, b):
    """Whether weight_norm takes these matrices as they lie, and is faster than the factored form."""
    given = matrix, a, b
    rank = a.shape[0]
    if not (matrix.is_cuda and state.enabled and rank and matrix.numel() and rank <= _MOST_RANK):
        return False
    if any(type(one) not in _PLAIN or one.dtype not in _TYPES or one.stride(1) != 1 for one in given):
        return False
    if not _has_tensor_cores(matrix.device):
        return False
    types = {one.dtype for one in given}
    if torch.float64 in types and len(types) > 1:
        return False
    is_on_tensor_cores = len(types) == 1 and matrix.dtype in _HALVES
    return is_on_tensor_cores or rank <= _MOST_RANK_WITHOUT_TENSOR_CORES


@functools.cache
def _has_tensor_cores(device):
    """Of the kind that the kernel uses for 16-bit types."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def assembled(terms, scale):
    """The norms from the three sums."""
    return run.outputs(_norm_assembly, tuple(terms), (scale,))[0]


def _check(weight, lora_A, lora_B):
    given = {"weight": weight, "lora_A": lora_A, "lora_B": lora_B}
    checks.tensors("weight_norm", **given)
    for name, tensor in given.items():
        if tensor.is_complex() or tensor.layout is not torch.strided:
            raise TypeError(f"weight_norm: argument `{name}` has elements of {tensor.dtype} in the "
                            f"layout {tensor.layout}; pass a dense tensor of real numbers")
        missing = engines.missing(tensor, least_dims=2)
        if missing:
            raise ValueError(f"weight_norm: argument `{name}` {missing}")
        if tensor.dim() < 2:
            raise ValueError(f"weight_norm: argument `{name}` has shape {tuple(tensor.shape)}; pass a "
                             "matrix or the weight of a convolution")
    checks.same_device("weight_norm", **given)
    columns, rank = math.prod(weight.shape[1:]), lora_A.shape[0]
    if math.prod(lora_A.shape[1:]) != columns:
        raise ValueError(f"weight_norm: argument `lora_A` has shape {tuple(lora_A.shape)}, which does "
                         f"not go with `weight` of {tuple(weight.shape)}; give it "
                         f"{columns} columns")
    if (lora_B.shape[0], math.prod(lora_B.shape[1:])) != (weight.shape[0], rank):
        raise ValueError(f"weight_norm: argument `lora_B` has shape {tuple(lora_B.shape)}, but "
                         f"`weight` has {weight.shape[0]} rows and `lora_A` a rank of {rank}; give it "
                         f"({weight.shape[0]}, {rank})")


class Chunks(NamedTuple):
    """How much of the weight is in work at a time."""

    rows: int
    columns: int


def chunks(out, columns, budget, cost):
    """As many rows, then columns at a time as the budget allows.

    Args:
        cost: (rows, columns at a time) -> bytes of all temporaries then.
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
    """Temporaries of the size of A A^T that a sixteenth of the budget holds, if there is use for them."""
    if not a.is_cuda:
        return 1
    return max(1, min(_MOST_PIECES, budget // 16 // max(_bytes_of_gram(a, dtype), 1)))


def sum_type(*operands):
    """The type in which sums over these tensors are taken."""
    return torch.float64 if any(one.dtype == torch.float64 for one in operands) else torch.float32


def sums(matrix, a, b, scale, budget, frozen, elements=None, dtype=None):
    """The three terms of the norm's square, by rows: ||W||^2, <W, B A>, ||B A||^2.

    Args:
        matrix, a, b: plain matrices, which may be parts of a weight and its factors.
        frozen, elements: as norm_cache.rows has them.
        dtype: of the sums; that of the operands if None.

    Returns:
        Three tensors of one element per row. The first may be kept for later calls: it is not to be
        written to.
    """
    dtype = sum_type(matrix, a, b) if dtype is None else dtype
    out, columns = matrix.shape
    squares = norm_cache.rows(frozen, (dtype, matrix.shape, matrix.stride()), lambda: _squares(
        matrix, dtype, chunks(out, columns, budget, _cost_of_squares(matrix, dtype))), elements)
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
    """So many rows or columns at a time. The operations on them are few, and count, on small weights."""
    return (tensor,) if tensor.shape[dim] <= size else tensor.split(size, dim)


def _squares(matrix, dtype, size):
    sums = torch.zeros(matrix.shape[0], dtype=dtype, device=matrix.device)
    for row in range(0, matrix.shape[0], size.rows):
        block, into = matrix[row:row + size.rows], sums[row:row + size.rows]
        for column in range(0, matrix.shape[1], size.columns):
            part = block[:, column:column + size.columns]
            # One temporary: the copy in the wide type is squared in place.
            part = part.to(dtype).square_() if part.dtype != dtype else part.square()
            into += part.sum(dim=1)
    return sums


def _low_rank_terms(matrix, b, cross, ba, a, gram, dtype, columns, mixed):
    """Writes <W, B A> and ||B A||^2 of some rows."""
    b = b.to(dtype)
    u = _product(matrix, a, dtype, columns, mixed)
    torch.sum(u.mul_(b), dim=1, out=cross)
    torch.sum(torch.mm(b, gram, out=u).mul_(b), dim=1, out=ba)


def _gram(a, dtype, columns, pieces, mixed):
    """a @ a.T in the type of sums, which are taken side by side in so many pieces."""
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
    # So few numbers, of so long sums, would leave most of a GPU idle.
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
    """left @ right, to be written to: selective checkpointing may keep what torch.mm itself returns."""
    return torch.mm(left, right, out=left.new_empty(left.shape[0], right.shape[1]))


def _operator(weight, lora_A, lora_B, scale, chunk_mb):
    # Nothing is kept: compiled code runs this while PyTorch allocates from the pool of a CUDA graph, in
    # which every tensor that outlives a call must be one of the graph's outputs.
    return _computed(weight, lora_A, lora_B, scale, chunk_mb, None)


def _fake_operator(weight, lora_A, lora_B, scale, chunk_mb):
    _check(weight, lora_A, lora_B)
    return weight.new_empty(weight.shape[:1], dtype=sum_type(weight, lora_A, lora_B))


_library = torch.library.Library("dorajit", "FRAGMENT")
_library.define("factored_norm(Tensor weight, Tensor lora_A, Tensor lora_B, float scale, "
                "int? chunk_mb) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_library.impl("factored_norm", _operator, "CompositeExplicitAutograd")
torch.library.register_fake("dorajit::factored_norm", _fake_operator, lib=_library)
