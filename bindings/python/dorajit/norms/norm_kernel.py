"""Row norms by the kernel weight_norm: the rules for when it is used, and its calls."""

import functools
import math
from typing import NamedTuple

import torch

from dorajit import errors, thresholds
from dorajit.checks import PLAIN, is_freed
from dorajit.control import state
from dorajit.norms import transposed
from dorajit.operations import recording, run
from dorajit.operations.gain import HALVES
from dorajit.operations.table import operations

_weight_norm = operations["weight_norm"]
_launch = _weight_norm.launch
_SPAN = 256  # columns, of which the kernel adds the squares along one tree (docs/numerics.md)
_CACHED_BYTES = 1 << 20
_TYPES = HALVES | {torch.float32, torch.float64}
# Element type of a magnitude -> element type of its gain.
_GAINS = {one: torch.float32 if one in HALVES else one for one in _TYPES}


class Served(NamedTuple):
    """A rule for calls that use the kernel, because it is not slower than products of PyTorch, host time included.

    Attributes:
        device: the device type.
        weight, factors: the element types.
        most_rank: the highest rank.
        most_elements: the largest weight, if its rows are contiguous.
        is_of_one_type: whether the weight and its factors must have the same type.
        capability: the lowest compute capability of a CUDA device.
        before: an exclusive upper bound of the compute capability.
    """

    device: str
    weight: frozenset
    factors: frozenset
    most_rank: int
    most_elements: float = math.inf
    is_of_one_type: bool = False
    capability: tuple[int, int] = (0, 0)
    before: tuple[int, int] = (1000, 0)


# Measured: docs/performance.md. Without tensor cores (the kernel uses them for float32 factors only on sm_90), beyond
# some rank products cost more than the passes over memory that the kernel saves. Up to that rank the kernel takes up to
# 1.5 times the GPU time and a fifth of the host time. With a rank of 0 the factors have the weight's type.
SERVED = (
    Served("cuda", HALVES, HALVES, 1024, is_of_one_type=True, capability=(8, 0)),
    Served("cuda", HALVES | {torch.float32}, {torch.float32}, 384, capability=(9, 0), before=(10, 0)),
    Served("cuda", _TYPES, _TYPES, 16, capability=(8, 0)),
    Served("cpu", _TYPES, _TYPES, 16),
    Served("cpu", _TYPES, _TYPES, 64, most_elements=1 << 18),
)


def serves(matrix, a, b, dtype):
    """Whether the kernel takes these matrices for results of type `dtype`, and a rule of SERVED matches."""
    if not state.enabled or not matrix.numel():
        return False
    for one in (matrix, a, b):
        if type(one) not in PLAIN or is_freed(one):
            return False
    elements = matrix.numel() if _has_rows(matrix) else 0  # others are copied at any size
    return _serves_types(recording.target_of(matrix), matrix.dtype, a.dtype, b.dtype, dtype, a.shape[0], elements)


@functools.lru_cache(maxsize=1024)
def _serves_types(device, matrix, a, b, dtype, rank, elements):
    if len({one is torch.float64 for one in (matrix, a, b, dtype)}) > 1:
        return False
    return any(device.type == rule.device and rank <= rule.most_rank and elements <= rule.most_elements
               and matrix in rule.weight and a in rule.factors and b in rule.factors
               and not (rule.is_of_one_type and not matrix == a == b)
               and (device.type != "cuda"
                    or rule.capability <= device.capability < rule.before)
               for rule in SERVED)


def at_once(weight, a, b, scale):
    """The norms for a call that needs no preparation: plain matrices, and a float scale that is not 0. None for other
    calls and for calls that the kernel refuses; the caller then checks the arguments and raises errors."""
    if type(scale) is not float or scale == 0 or not state.enabled:
        return None
    for one in (weight, a, b):
        if type(one) not in PLAIN or one.dim() != 2 or not one.numel() or not one.is_contiguous() or is_freed(one):
            return None
    dtype = torch.float64 if weight.dtype is torch.float64 else torch.float32
    if not _serves_types(recording.target_of(weight), weight.dtype, a.dtype, b.dtype, dtype, a.shape[0], weight.numel()):
        return None
    try:
        return _launch(weight, a, b, None, dtype, None, None, None, scale)[0]
    except errors.Error:
        return None


def norms(matrix, a, b, scale, budget, dtype, squared=False):
    """The norms of the rows of matrix + scale * b @ a, or their squares; None if PyTorch's products have to be used.

    The kernel reads rows of contiguous elements. A matrix with other strides is copied: on a GPU if the budget holds it,
    on a CPU as many columns at a time as stay in its cache.
    """
    if scale == 0 or not a.shape[0]:
        a, b = matrix.new_empty((0, matrix.shape[1])), matrix.new_empty((matrix.shape[0], 0))
    if not serves(matrix, a, b, dtype):
        return None
    a, b = (one if _has_rows(one) else one.contiguous() for one in (a, b))
    if not _has_rows(matrix):
        if recording.target_of(matrix).type == "cpu":
            return _norms_by_columns(matrix, a, b, scale, dtype, squared)
        if matrix.nbytes > budget:
            return None
        matrix, a = transposed.with_rows(matrix), transposed.with_rows(a)
    return _launched(matrix, a, b, scale, dtype, squared)


def _norms_by_columns(matrix, a, b, scale, dtype, squared):
    """`norms` of a matrix on a CPU whose columns are contiguous: PyTorch copies whole columns several times as fast as
    whole rows."""
    columns = max(_CACHED_BYTES // (matrix.shape[0] * matrix.element_size()) // _SPAN, 1) * _SPAN
    if matrix.shape[1] <= columns:
        return _launched(matrix.contiguous(), a, b, scale, dtype, squared)
    total = matrix.new_zeros(matrix.shape[0], dtype=torch.float64)  # so that the number of parts adds no error
    for part, of_a in zip(matrix.split(columns, 1), a.split(columns, 1)):
        total += _launched(part.contiguous(), of_a, b, scale, dtype, True)
    return (total if squared else total.sqrt_()).to(dtype)


def gain_type(matrix, a, b, magnitude):
    """The element type of the divisor and the gain that one launch computes for the rows of matrix + scale * b @ a, with
    the same bits as gain.py; None if they have to be computed from the norms, as for a scale of 0. All are plain tensors,
    `magnitude` [rows]."""
    if a.dim() != 2 or matrix.dim() != 2 or not _has_rows(matrix):
        return None
    return _gain_type(recording.target_of(matrix), matrix.dtype, a.dtype, b.dtype, magnitude.dtype, a.shape[0],
                      matrix.numel())


@functools.lru_cache(maxsize=1024)
def _gain_type(device, matrix, a, b, magnitude, rank, elements):
    dtype = torch.float64 if torch.float64 in (matrix, a, b) else torch.float32
    is_served = rank and elements and _serves_types(device, matrix, a, b, dtype, rank, elements)
    return _GAINS.get(magnitude) if is_served else None


def divisor_and_gain(matrix, a, b, magnitude, scale):
    """(divisor, gain) by that launch, in the shape of the magnitude; None if they have to be computed from the norms,
    which also raises errors for wrong tensors."""
    if scale == 0 or not state.enabled or matrix.layout is not torch.strided:
        return None
    for one in (matrix, a, b, magnitude):
        # The launch refuses the address of freed memory, which is null, except that of a view.
        if type(one) not in PLAIN or (one.storage_offset() and is_freed(one)):
            return None
    if a.shape[1:] != matrix.shape[1:]:
        return None
    if not _has_rows(matrix) and not is_freed(matrix):
        if recording.is_cuda(matrix) and matrix.nbytes <= thresholds.norm_bytes(None):
            matrix, a = transposed.with_rows(matrix), transposed.with_rows(a)
        elif recording.target_of(matrix).type == "cpu" and matrix.nbytes <= _CACHED_BYTES:
            matrix = matrix.contiguous()
    gains = gain_type(matrix, a, b, magnitude)
    if gains is None:
        return None
    try:
        return _launch(matrix, a, b, magnitude, None, None, gains, gains, scale)[:1:-1]
    except errors.Error:
        return None


def _has_rows(matrix):
    """Whether the elements of each row are contiguous and rows do not overlap."""
    if matrix.is_contiguous():
        return True
    rows, columns = matrix.shape
    return (columns <= 1 or matrix.stride(1) == 1) and (rows <= 1 or matrix.stride(0) >= columns)


def _launched(matrix, a, b, scale, into, squared):
    """The norms or squares, written into a tensor or allocated with an element type; None if no kernel can be launched
    now."""
    outputs = (None, into, None, None) if squared else (into, None, None, None)
    try:
        made = run.launch(_weight_norm, (matrix, a, b, None), outputs, scale)
    except errors.CaptureUnsafeError:  # the kernel is not compiled yet; PyTorch's operations can be captured
        return None
    return made if made is None else made[1 if squared else 0]
