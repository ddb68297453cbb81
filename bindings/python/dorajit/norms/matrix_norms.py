"""The norms of plain matrices, by the kernel or in the factored form: what the norms of plain tensors and of DTensors
(dorajit.norms.norm, dtensor_norm) share."""

import torch

from dorajit.norms import factored_norm, norm_kernel
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
    row. The squares of parts of the columns add up to that of the row. Rounding may make them negative."""
    made = norm_kernel.norms(*call)
    return factored_norm.norms(*call) if made is None else made
