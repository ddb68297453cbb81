"""The weight norm of DTensors: each rank sums its own part, and an all-reduce adds the sums.

The square of a norm is a sum over columns, so it is the sum of the squares of parts of the columns. Only these, one
number per row, and the low-rank factors are communicated.

torch.distributed.tensor is not imported: whoever has made a DTensor has done so.
"""

import torch
import torch.distributed

from dorajit.distributed import frameworks, part
from dorajit.norms import matrix_norms


def weight_norm(weight, lora_A, lora_B, scale, budget):
    """norm.weight_norm where an argument is a DTensor. A collective call over the weight's mesh.

    Args:
        weight, lora_A, lora_B, scale: as for norm.weight_norm, already checked. A factor that is not a DTensor
            is whole, and the same on each rank.
        budget: bytes of temporaries.

    Returns:
        [out]: a DTensor over the weight's mesh, sharded as the rows of the weight are; a plain tensor
        if the weight is one.
    """
    dtype = matrix_norms.sum_type(weight, lora_A, lora_B)
    with torch.no_grad():
        if not frameworks.is_dtensor(weight):
            matrices = matrix_norms.matrices(weight, _whole(lora_A), _whole(lora_B))
            return matrix_norms.norms(*matrices, scale, budget, dtype)
        *here, place = operands(weight, lora_A, lora_B, needs_factors=scale != 0)
        call = *matrix_norms.matrices(*here), scale, budget, dtype
        if place.reduced:
            # One all-reduce on every rank: whether a kernel runs may differ between ranks, as no kernel takes some
            # parts of the columns.
            norms = matrix_norms.norms(*call, True)
            sum_over(norms, weight.device_mesh, place.reduced)
            norms.sqrt_()
        else:
            norms = matrix_norms.norms(*call)
        return torch.distributed.tensor.DTensor.from_local(
            norms, weight.device_mesh, place.by_rows, run_check=False, shape=torch.Size((weight.shape[0],)),
            stride=(1,))


def operands(weight, lora_A, lora_B, needs_factors=True):
    """(the local part of a weight, the matching columns of A, the matching rows of B, the Part), plain tensors."""
    here = part.of("weight_norm", "weight", weight)
    matrix = frameworks.local(weight)
    if not needs_factors:
        nothing = matrix.new_zeros((0,) + tuple(matrix.shape[1:]))
        return matrix, nothing, matrix.new_zeros(matrix.shape[0], 0), here
    a, b = _aligned(lora_A, weight, rows=False), _aligned(lora_B, weight, rows=True)
    if a is None:
        a = _whole(lora_A).detach()
        for dim, indices in here.columns.items():
            a = part.select(a, dim, indices)
    if b is None:
        b = part.select(_whole(lora_B).detach(), 0, here.rows)
    return matrix, a, b, here


def sum_over(tensor, mesh, mesh_dims):
    """Sums a tensor in place over dimensions of a mesh. Every rank gets the same bits."""
    for dim in mesh_dims:
        torch.distributed.all_reduce(tensor, group=mesh.get_group(dim))


def _aligned(factor, weight, rows):
    """The local part of a factor whose placements match the weight's, or None."""
    if not frameworks.is_dtensor(factor) or factor.device_mesh != weight.device_mesh:
        return None
    return frameworks.local(factor) if factor.placements == part.wanted(weight, rows) else None


def _whole(tensor):
    return tensor.full_tensor() if frameworks.is_dtensor(tensor) else tensor
