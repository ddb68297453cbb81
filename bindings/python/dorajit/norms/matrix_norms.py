"""The norms of plain matrices, by the kernel weight_norm or by PyTorch's products, and the rules for which of them. The norms
of plain tensors (dorajit.norms.norm) and of DTensors (dorajit.norms.dtensor_norm) share them."""

import functools

import torch

from dorajit import control, errors
from dorajit.checks import PLAIN, is_freed
from dorajit.control import state
from dorajit.norms import precision, transposed
from dorajit.operations import eligibility, recording, run
from dorajit.operations.gain import HALVES
from dorajit.operations.table import operations

_weight_norm = operations["weight_norm"]
_launch = _weight_norm.launch
_SPAN = 256  # columns, of which the kernel adds the squares along one tree (docs/numerics.md)
_CACHED_BYTES = 1 << 20
_TYPES = HALVES | {torch.float32, torch.float64}
# Element type of a magnitude -> element type of its gain.
_GAINS = {one: torch.float32 if one in HALVES else one for one in _TYPES}


def matrices(weight, lora_A, lora_B):
    """Plain tensors as [out, in], [rank, in] and [out, rank]. Columns have the order of the weight's memory, so that a
    weight in channels_last is not copied."""
    if torch.is_grad_enabled() or eligibility.is_observed():  # a trace is compared with one without a graph
        weight, lora_A, lora_B = weight.detach(), lora_A.detach(), lora_B.detach()
    if weight.dim() > 2 and not weight.is_contiguous():
        order = 0, *sorted(range(1, weight.dim()), key=lambda dim: -weight.stride(dim))
        lora_A = lora_A.reshape(lora_A.shape[:1] + weight.shape[1:]).permute(order)
        weight = weight.permute(order)
    return weight.flatten(1), lora_A.flatten(1), lora_B.flatten(1)


def sum_type(*operands):
    """The element type of sums over these tensors."""
    return torch.float64 if any(one.dtype == torch.float64 for one in operands) else torch.float32


def serves(matrix, a, b, dtype):
    """Whether the kernel takes these matrices for results of type `dtype`, and is not slower."""
    if not state.enabled or not matrix.numel():
        return False
    for one in (matrix, a, b):
        if type(one) not in PLAIN or is_freed(one):
            return False
    elements = matrix.numel() if _has_rows(matrix) else 0  # others are copied at any size
    return _serves_types(recording.target_of(matrix), matrix.dtype, a.dtype, b.dtype, dtype, a.shape[0], elements)


@functools.lru_cache(maxsize=1024)
def _serves_types(device, matrix, a, b, dtype, rank, elements):
    """Whether the kernel is used for these element types, because it is not slower than products of PyTorch, host time
    included. `elements` of the matrix, 0 if its rows are not contiguous.

    Measured: docs/performance.md. Without tensor cores, which a CPU lacks and float64 does not use, beyond some rank
    products cost more than the passes over memory that the kernel saves. Up to that rank the kernel takes up to 1.5 times
    the GPU time and a fifth of the host time. With a rank of 0 the factors have the weight's type.
    """
    if not {matrix, a, b} <= _TYPES or len({one is torch.float64 for one in (matrix, a, b, dtype)}) > 1:
        return False
    if device.type == "cpu":
        return rank <= (64 if elements <= 1 << 18 else 16)
    if device.type != "cuda" or device.capability < (8, 0):
        return False
    return rank <= (16 if matrix is torch.float64 else 1024)


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


def norms(*call):
    """The norms of plain matrices: (matrix, a, b, scale, budget, dtype, squared=False) -> one number of type dtype per
    row, of matrix + scale * b @ a. The squares of parts of the columns add up to that of the row."""
    made = _by_kernel(*call)
    return _by_products(*call) if made is None else made


def _by_kernel(matrix, a, b, scale, budget, dtype, squared=False):
    """`norms` by the kernel; None if PyTorch's products have to be used.

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


def _by_products(matrix, a, b, scale, budget, dtype, squared=False):
    """`norms` of as many rows at a time as the budget holds in type dtype, beside the factors."""
    rows, columns = matrix.shape
    sums = matrix.new_empty(rows, dtype=dtype)
    with precision.full(matrix.device.type):
        factors = precision.terms(b, a, dtype) if scale != 0 and a.shape[0] else None
        copies = 1 if factors is None or factors[0].dtype is dtype else 2
        at_once = min(max((budget - sums.nbytes) // (copies * dtype.itemsize * max(columns, 1)), 1), max(rows, 1))
        buffer = matrix.new_empty(at_once, columns, dtype=dtype)
        for row in range(0, rows, at_once):
            part = matrix[row:row + at_once]
            total = buffer[:len(part)].copy_(part)
            if factors is not None:
                total = precision.added(total, factors[0][row:row + at_once], factors[1], scale)
            torch.sum(total.square_(), 1, out=sums[row:row + at_once])
        return sums if squared else sums.sqrt_()


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
    rank, elements, types = a.shape[0], matrix.numel(), (matrix.dtype, a.dtype, b.dtype)
    dtype = torch.float64 if torch.float64 in types else torch.float32
    is_served = rank and elements and _serves_types(recording.target_of(matrix), *types, dtype, rank, elements)
    return _GAINS[magnitude.dtype] if is_served and magnitude.dtype in _GAINS else None


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
        if recording.is_cuda(matrix) and matrix.nbytes <= control.norm_bytes(None):
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
