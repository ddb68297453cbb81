"""Replacements of PEFT's methods that merge and unmerge, with the conventions of dorajit.peft.layers.

PEFT restores the base weight by dividing the merged one by the gain. Rows that a gain of 0, or close to it, has erased
are kept when they are merged.
"""

import torch
from peft.utils.other import transpose

from dorajit.operations import gain

_ROWS_AT_ONCE = 1024


def weight_norm(original, self, weight, lora_weight, scaling, adapter_name=None):
    """get_weight_norm, which merging calls: summed in float32, rounded to the magnitude's type."""
    if adapter_name is not None or not isinstance(getattr(self, "weight", None), torch.Tensor):
        known = {} if adapter_name is None else {"adapter_name": adapter_name}
        return original(self, weight, lora_weight, scaling, **known)
    rows = transpose(weight, self.fan_in_fan_out) if weight.dim() == 2 else weight.flatten(1)
    norms = _dense_norm(rows, lora_weight.reshape(rows.shape), scaling)
    # The divisor of the magnitude as in forward, so that merging uses the same.
    return as_magnitude(gain.magnitude_of(norms, self.weight.dtype), weight)


def as_magnitude(norms, weight):
    """Norms of a weight's rows in the shape of the magnitude."""
    return norms if weight.dim() == 2 else norms.view(1, -1, *(1,) * (weight.dim() - 2))


def _dense_norm(weight, lora_weight, scaling):
    wide = torch.promote_types(torch.float32, torch.promote_types(weight.dtype, lora_weight.dtype))
    norms = torch.empty(weight.shape[0], dtype=wide, device=weight.device)
    for start in range(0, weight.shape[0], _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        dense = weight[rows].to(wide) + scaling * lora_weight[rows].to(wide)
        norms[rows] = torch.linalg.vector_norm(dense, dim=1)
    return norms


@torch.no_grad()
def merge(original, module, active_adapter, orig_weight):
    """merge_safe and merge_unsafe of the variants."""
    before = orig_weight.data  # merge_unsafe gives the parameter new memory and leaves this as it is
    merged = original(module, active_adapter, orig_weight)
    layer, norms = module.lora_magnitude_vector[active_adapter], module._caches[f"{active_adapter}-weight_norm"]
    gains = (layer.weight / norms).flatten().abs()
    info = torch.finfo(before.dtype)
    # Merged elements may be subnormal numbers, or 0, only in these rows.
    rows = (~(gains >= info.tiny / info.eps)).nonzero().flatten()  # of NaN, too
    if rows.numel():
        dim = int(before.dim() == 2 and layer.fan_in_fan_out)
        module._cache_store(_key(active_adapter), (dim, rows, before.index_select(dim, rows)))
    return merged


@torch.no_grad()
def unmerge(original, module, active_adapter, orig_weight):
    """unmerge of the variants."""
    weight = original(module, active_adapter, orig_weight)
    kept = module._caches.pop(_key(active_adapter), None)
    if kept is not None:
        dim, rows, elements = kept
        weight.index_copy_(dim, rows.to(weight.device), elements.to(weight))
    return weight


def _key(adapter):
    return f"{adapter}-dorajit-rows"
