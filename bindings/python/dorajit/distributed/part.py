"""Which rows and columns of a DTensor this rank has."""

from typing import NamedTuple

import torch
import torch.distributed


class Part(NamedTuple):
    """The local part of a weight.

    Attributes:
        rows: indices of the rows.
        columns: dimension -> indices, for the sharded dimensions other than the first.
        reduced: the dimensions of the mesh that split columns; partial sums per row
            have to be reduced over them.
        by_rows: placements of a tensor with one element per row.
    """

    rows: torch.Tensor
    columns: dict
    reduced: tuple
    by_rows: tuple


def of(function, name, tensor):
    """The Part of a DTensor.

    Raises:
        ValueError: for placements that are neither Shard nor Replicate, a mesh without this rank,
            or a local tensor whose size is not the one that the placements give it.
    """
    mesh, here = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    if here is None:
        raise ValueError(f"{function}: argument `{name}` is a DTensor over {mesh}, which does not contain this "
                         "rank; call it on the ranks of the mesh only")
    _check_order(function, name, tensor)
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


def _check_order(function, name, tensor):
    """Raises ValueError if the tensor was sharded in another order than that of the mesh's dimensions."""
    spec = tensor._spec
    order = getattr(spec, "shard_order", None)
    if order is not None and order != type(spec).compute_default_shard_order(spec.placements):
        raise ValueError(f"{function}: argument `{name}` is a DTensor sharded in the order {order}; "
                         "redistribute it in the order of the mesh's dimensions")


def _chunk(indices, placement, chunks, here):
    """The part of `indices` that the placement gives to one coordinate of the mesh dimension."""
    if _kind(placement) == "_StridedShard":
        within = type(placement)(0, split_factor=placement.split_factor)
        return within._split_tensor(indices, chunks, with_padding=False)[0][here]
    found = indices.chunk(chunks) if len(indices) else ()
    return found[here] if here < len(found) else indices[:0]


def select(tensor, dim, indices):
    """The slices of a whole tensor at these indices; a view if the indices are consecutive."""
    if not len(indices) or int(indices[-1]) - int(indices[0]) + 1 == len(indices):
        return tensor.narrow(dim, int(indices[0]) if len(indices) else 0, len(indices))
    return tensor.index_select(dim, indices.to(tensor.device))


def wanted(weight, rows):
    """The placements of a factor that match the weight's, for its rows or for its columns."""
    def is_wanted(placement):
        return _kind(placement) != "Replicate" and (placement.dim % weight.dim() == 0) == rows
    return tuple(one if is_wanted(one) else torch.distributed.tensor.Replicate() for one in weight.placements)
