"""The norms of plain matrices, by the kernel or by PyTorch's products: what the norms of plain tensors and of DTensors
(dorajit.norms.norm, dtensor_norm) share."""

import torch

from dorajit.norms import norm_kernel, precision
from dorajit.operations import eligibility


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


def norms(*call):
    """The norms of plain matrices: (matrix, a, b, scale, budget, dtype, squared=False) -> one number of type dtype per
    row. The squares of parts of the columns add up to that of the row."""
    made = norm_kernel.norms(*call)
    return _by_products(*call) if made is None else made


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
