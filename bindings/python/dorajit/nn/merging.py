"""The dense matrix gain * (W + s B A), for the local part of W."""

import torch

from dorajit.distributed import frameworks
from dorajit.norms import dtensor_norm, precision

_ROWS_AT_ONCE = 1024


def merged(weight, a, b, gain, scaling):
    """The merged rows of a weight, as a matrix of its element type.

    Args:
        weight, a, b, gain: as for the norm. If the weight is a DTensor, the result is for its local part.
        scaling: s.
    """
    if frameworks.is_dtensor(weight):
        weight, a, b, here = dtensor_norm.operands(weight, a, b)
        gain = gain.full_tensor() if frameworks.is_dtensor(gain) else gain
        gain = gain.reshape(-1)[here.rows.to(gain.device)]
    weight, a, b = (one.detach().flatten(1) for one in (weight, a, b))
    gain = gain.reshape(-1, 1)
    result = torch.empty_like(weight)
    with precision.full(weight.device.type):
        for start in range(0, weight.shape[0], _ROWS_AT_ONCE):
            rows, wide = slice(start, start + _ROWS_AT_ONCE), gain.dtype
            dense = torch.addmm(weight[rows].to(wide), b[rows].to(wide), a.to(wide), alpha=scaling)
            result[rows] = dense.mul_(gain[rows]).to(result.dtype)
    return result


def require_stored(function, base_layer):
    """Raises ValueError if the weight is recomputed for each pass, so that a merged weight would be overwritten."""
    names = dict(base_layer.named_parameters(recurse=False))
    is_made_of_others = "weight" not in names and any(name.startswith("weight_") for name in names)
    if is_made_of_others or torch.nn.utils.parametrize.is_parametrized(base_layer, "weight"):
        raise ValueError(f"{function}: the weight of `base_layer` is computed from other parameters; "
                         "remove what computes it first (torch.nn.utils.parametrize."
                         "remove_parametrizations, prune.remove, remove_weight_norm)")


def is_finite(rows, weight):
    """Whether all elements are finite, on all ranks that share the weight."""
    infinite = (~torch.isfinite(rows).all()).to(torch.float32)
    if frameworks.is_dtensor(weight):
        dtensor_norm.sum_over(infinite, weight.device_mesh, range(weight.device_mesh.ndim))
    return not infinite
