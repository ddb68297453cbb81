"""The weight norm of DTensors: each rank sums its own part, and an all-reduce adds the sums.

The square of a norm is a sum over columns, so it is the sum of the squares of parts of the columns. Only these, one
number per row, and the low-rank factors are communicated.

torch.distributed.tensor is not imported: whoever has made a DTensor has done so.
"""

from typing import NamedTuple

import torch
import torch.distributed

from dorajit.distributed import gather
from dorajit.norms import matrix_norms


def weight_norm(weight, lora_A, lora_B, scale, budget):
    """norm.weight_norm of checked arguments of which some are DTensors, with a budget in bytes. A collective call over the
    weight's mesh. A factor that is not a DTensor is whole, and the same on each rank. The result is a DTensor over the
    weight's mesh, sharded as the rows of the weight are; a plain tensor if the weight is one."""
    dtype = matrix_norms.sum_type(weight, lora_A, lora_B)
    with torch.no_grad():
        if not gather.is_dtensor(weight):
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
    here = _part_of("weight_norm", "weight", weight)
    matrix = gather.local(weight)
    if not needs_factors:
        nothing = matrix.new_zeros((0,) + tuple(matrix.shape[1:]))
        return matrix, nothing, matrix.new_zeros(matrix.shape[0], 0), here
    a, b = _aligned(lora_A, weight, rows=False), _aligned(lora_B, weight, rows=True)
    if a is None:
        a = _whole(lora_A).detach()
        for dim, indices in here.columns.items():
            a = _select(a, dim, indices)
    if b is None:
        b = _select(_whole(lora_B).detach(), 0, here.rows)
    return matrix, a, b, here


def sum_over(tensor, mesh, mesh_dims):
    """Sums a tensor in place over dimensions of a mesh. Every rank gets the same bits."""
    for dim in mesh_dims:
        torch.distributed.all_reduce(tensor, group=mesh.get_group(dim))


def _aligned(factor, weight, rows):
    """The local part of a factor whose placements match the weight's, for its rows or for its columns, or None."""
    if not gather.is_dtensor(factor) or factor.device_mesh != weight.device_mesh:
        return None
    for one, of_weight in zip(factor.placements, weight.placements):
        is_split = _kind(of_weight) != "Replicate" and (of_weight.dim % weight.dim() == 0) == rows
        if one != of_weight if is_split else _kind(one) != "Replicate":
            return None
    return gather.local(factor)


def _whole(tensor):
    return tensor.full_tensor() if gather.is_dtensor(tensor) else tensor


class Part(NamedTuple):
    """The local part of a weight."""

    rows: torch.Tensor  # their indices
    columns: dict       # dimension -> indices, for the sharded dimensions other than the first
    reduced: tuple      # the dimensions of the mesh that split columns, over which sums per row have to be reduced
    by_rows: tuple      # placements of a tensor with one element per row


def _part_of(function, name, tensor):
    """The Part of a DTensor. Raises ValueError for placements that are neither Shard nor Replicate, a mesh without this
    rank, a tensor that was sharded in another order than that of the mesh's dimensions, or a local tensor whose size is
    not the one that the placements give it."""
    mesh, here = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    if here is None:
        raise ValueError(f"{function}: argument `{name}` is a DTensor over {mesh}, which does not contain this "
                         "rank; call it on the ranks of the mesh only")
    order = getattr(tensor._spec, "shard_order", None)
    if order is not None and order != type(tensor._spec).compute_default_shard_order(tensor.placements):
        raise ValueError(f"{function}: argument `{name}` is a DTensor sharded in the order {order}; "
                         "redistribute it in the order of the mesh's dimensions")
    kept = [torch.arange(size) for size in tensor.shape]
    reduced, by_rows = [], []
    for mesh_dim, placement in enumerate(tensor.placements):
        if _kind(placement) == "Replicate":
            by_rows.append(placement)
            continue
        if _kind(placement) not in ("Shard", "_StridedShard"):
            raise ValueError(f"{function}: argument `{name}` is a DTensor with the placement "
                             f"{placement!r}, for which norms cannot be summed by parts; redistribute it "
                             "to Shard or Replicate placements")
        dim = placement.dim % tensor.dim()
        kept[dim] = _chunk(kept[dim], placement, mesh.size(mesh_dim), here[mesh_dim])
        if dim:
            reduced.append(mesh_dim)
        by_rows.append(torch.distributed.tensor.Replicate() if dim else placement)
    found, expected = tensor.to_local().shape, tuple(map(len, kept))
    if tuple(found) != expected:
        raise ValueError(f"{function}: argument `{name}` is a DTensor with {tuple(found)} elements on "
                         f"this rank, but {tensor.placements} over {mesh} give it {expected}; create "
                         "it with distribute_tensor or fully_shard")
    columns = {dim: kept[dim] for dim in range(1, tensor.dim()) if len(kept[dim]) < tensor.shape[dim]}
    return Part(kept[0], columns, tuple(reduced), tuple(by_rows))


def _kind(placement):
    return type(placement).__name__


def _chunk(indices, placement, chunks, here):
    """The part of `indices` that the placement gives to one coordinate of the mesh dimension."""
    if _kind(placement) == "_StridedShard":
        within = type(placement)(0, split_factor=placement.split_factor)
        return within._split_tensor(indices, chunks, with_padding=False)[0][here]
    found = indices.chunk(chunks) if len(indices) else ()
    return found[here] if here < len(found) else indices[:0]


def _select(tensor, dim, indices):
    """The slices of a whole tensor at these indices; a view if the indices are consecutive."""
    if not len(indices) or int(indices[-1]) - int(indices[0]) + 1 == len(indices):
        return tensor.narrow(dim, int(indices[0]) if len(indices) else 0, len(indices))
    return tensor.index_select(dim, indices.to(tensor.device))
