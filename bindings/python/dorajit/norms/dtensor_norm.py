"""The weight norm of DTensors: each rank sums over its own part, and sums are summed over the mesh.

The square of a norm is a sum over columns, so the squares of parts of the columns add up to it. Only they, one
number per row, and the low-rank factors travel.
"""

from typing import NamedTuple

import torch
import torch.distributed
from torch import Tensor
from torch.distributed.tensor import DTensor

from dorajit.norms import norm
from dorajit.distributed import frameworks, part


class Operands(NamedTuple):
    """What of a weight and its factors meets on this rank, as plain tensors."""

    weight: Tensor
    lora_A: Tensor
    lora_B: Tensor
    part: part.Part


def weight_norm(weight, lora_A, lora_B, scale, budget):
    """norm.weight_norm where an argument is a DTensor. A collective call over the weight's mesh.

    Args:
        as those of norm.weight_norm, checked. A factor that is no DTensor is the whole factor, and
        the same on each rank.

    Returns:
        [out]: a DTensor over the weight's mesh, sharded as the rows of the weight are; a plain tensor
        if the weight is one.
    """
    dtype = norm.sum_type(weight, lora_A, lora_B)
    with torch.no_grad():
        if not frameworks.is_dtensor(weight):
            return norm.norms(*norm.matrices(weight, _whole(lora_A), _whole(lora_B)), scale, budget, dtype)
        *here, place = operands(weight, lora_A, lora_B, needs_factors=scale != 0)
        call = *norm.matrices(*here), scale, budget, dtype
        if place.reduced:
            # One vector, however each rank made its own: a part of the columns may be such as no kernel takes.
            norms = norm.squares(*call)
            sum_over(norms, weight.device_mesh, place.reduced)
            norms.clamp_min_(0).sqrt_()
        else:
            norms = norm.norms(*call)
        return DTensor.from_local(norms, weight.device_mesh, place.by_rows, run_check=False,
                                  shape=torch.Size((weight.shape[0],)), stride=(1,))


def operands(weight, lora_A, lora_B, needs_factors=True):
    """The local part of a weight, with the columns of A and the rows of B that belong to it."""
    here = part.of("weight_norm", "weight", weight)
    matrix = local(weight)
    if not needs_factors:
        nothing = matrix.new_zeros((0,) + tuple(matrix.shape[1:]))
        return Operands(matrix, nothing, matrix.new_zeros(matrix.shape[0], 0), here)
    a, b = _aligned(lora_A, weight, rows=False), _aligned(lora_B, weight, rows=True)
    if a is None:
        a = _whole(lora_A).detach()
        for dim, indices in here.columns.items():
            a = part.select(a, dim, indices)
    if b is None:
        b = part.select(_whole(lora_B).detach(), 0, here.rows)
    return Operands(matrix, a, b, here)


def local(tensor):
    """The elements of a DTensor that lie here; a plain tensor as it is."""
    if not frameworks.is_dtensor(tensor):
        return tensor
    with torch.no_grad():
        found = tensor.to_local()
    return (found.wait() if hasattr(found, "wait") else found).detach()


def sum_over(tensor, mesh, mesh_dims):
    """Sums a tensor in place over dimensions of a mesh. Every rank gets the same bits."""
    for dim in mesh_dims:
        torch.distributed.all_reduce(tensor, group=mesh.get_group(dim))


def _aligned(factor, weight, rows):
    """The local part of a factor that is laid out as the weight is, or None."""
    if not frameworks.is_dtensor(factor) or factor.device_mesh != weight.device_mesh:
        return None
    return local(factor) if factor.placements == part.wanted(weight, rows) else None


def _whole(tensor):
    return tensor.full_tensor() if frameworks.is_dtensor(tensor) else tensor
