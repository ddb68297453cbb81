"""Replacements of PEFT's methods that create magnitudes, merge and unmerge, with the conventions of dorajit.peft.layers; and
the correction of the magnitudes of untrained adapters."""

import copy

import torch
from peft.tuners.lora import dora
from peft.utils.other import transpose

from dorajit.checks import PLAIN
from dorajit.norms import norm
from dorajit.operations import gain, recording
from dorajit.peft import layers, report
from dorajit.distributed import gather

_ROWS_AT_ONCE = 1024


def update_layer(original, self, *, base_layer, lora_A, lora_B, scaling, place_on_cpu=False):
    """DoraLinearLayer.update_layer: the magnitude of a new adapter.

    The magnitude has the type that PEFT gives it. If that has 16 bits, the float32 norms are kept until PEFT
    has cast the adapter, so that a float32 magnitude is not made from rounded norms.
    """
    found = _norms(self, base_layer, lora_A, lora_B, scaling)
    if found is None:
        original(self, base_layer=base_layer, lora_A=lora_A, lora_B=lora_B, scaling=scaling, place_on_cpu=place_on_cpu)
        return
    norms, dtype = found
    if place_on_cpu:
        norms = norms.to("cpu")
    rounded = gain.magnitude_of(norms, torch.promote_types(dtype, lora_A.dtype))
    self.weight = torch.nn.Parameter(rounded, requires_grad=True)
    if rounded.dtype != norms.dtype:
        self._dorajit_norms = norms


def _norms(layer, base_layer, lora_A, lora_B, scaling):
    """(norms in the shape of the magnitude, element type of the weight); None if the layer is left to PEFT."""
    stored = layers.stored(base_layer)
    if getattr(base_layer, "groups", 1) != 1 or (stored is not None and (stored.is_meta or gather.is_dtensor(stored))):
        return None
    if any(one.is_meta or layers.unfit(one.data) or gather.is_dtensor(one) for one in (lora_A, lora_B)):
        return None
    with gather.whole(base_layer):
        if type(base_layer).__name__ == "Linear4bit":  # as PEFT does, for FSDP
            base_layer = copy.deepcopy(base_layer)
        weight = dora.dequantize_module_weight(base_layer).detach()
        if layers.unfit(weight):
            return None
        if weight.dim() == 2:
            weight = transpose(weight, layer.fan_in_fan_out)
        norms = norm.weight_norm(weight.to(lora_A.device), lora_A, lora_B, scaling)
    return _as_magnitude(norms, weight), weight.dtype


def cast_adapter_dtype(original, self, adapter_name, autocast_adapter_dtype=True):
    """BaseTuner._cast_adapter_dtype: new magnitudes that become float32 are set to the exact norms."""
    fresh = []
    for layer in (one for one in self.model.modules() if "_dorajit_norms" in vars(one)):
        norms, rounded = vars(layer).pop("_dorajit_norms"), layer.weight.detach()
        # Skip a magnitude that was trained or loaded since.
        if not rounded.is_meta and torch.equal(rounded.to(norms.device), gain.magnitude_of(norms, rounded.dtype)):
            fresh.append((layer, gain.magnitude_of(norms, norms.dtype)))
    original(self, adapter_name, autocast_adapter_dtype)
    for layer, norms in fresh:
        if layer.weight.dtype == norms.dtype:
            with torch.no_grad():
                layer.weight.copy_(norms)
    report.warn_of_halves(self.model)


@torch.no_grad()
def refine(model):
    """Sets the magnitudes of untrained adapters to dorajit's norms, so that their gain is exactly 1.

    PEFT rounds a new magnitude to the type of the weight before it casts it to float32. Without this
    correction, a new adapter would change outputs by that rounding. A magnitude counts as untrained if A or B is
    zero and the magnitude is within rounding of the norm.
    """
    for module in model.modules():
        for adapter, layer in (getattr(module, "lora_magnitude_vector", None) or {}).items():
            found = _factors(module, adapter)
            if found is None or not isinstance(layer, dora.DoraLinearLayer):
                continue
            weight, a, b = found
            if any(one.is_meta for one in (weight, a, b, layer.weight)):
                continue
            if not recording.is_running() and a.any() and b.any():  # a recorded adapter counts as untrained
                continue
            if weight.dim() == 2:
                weight = transpose(weight, layer.fan_in_fan_out)
            if layer.weight.device != weight.device or a.device != weight.device:
                continue
            norms = norm.weight_norm(weight, a, b, 0.0)
            if recording.is_running():
                continue
            norms = gain.magnitude_of(norms.reshape(layer.weight.shape), layer.weight.dtype)
            step = max(1e-6, *(torch.finfo(one.dtype).eps for one in (weight, layer.weight)))
            # PEFT's magnitude of a row of zeros is 0; earlier versions of this package made 1e-6 of 16 bits.
            least = 1e-6 if norms.dtype in gain.HALVES else gain.eps(norms.dtype)
            if ((layer.weight - norms).abs() <= step * norms + least).all():
                layer.weight.copy_(norms)


def _factors(module, adapter):
    """(base weight, A, B); None if the layer is not a plain one of PEFT's."""
    base_layer = module.get_base_layer()
    weight = getattr(base_layer, "weight", None)
    if type(weight) not in PLAIN or not isinstance(weight, torch.nn.Parameter) or getattr(base_layer, "groups", 1) != 1:
        return None
    if adapter in module.lora_embedding_A:
        return weight, module.lora_embedding_A[adapter], module.lora_embedding_B[adapter]
    if adapter in module.lora_A:
        return weight, module.lora_A[adapter].weight, module.lora_B[adapter].weight
    return None


def weight_norm(original, self, weight, lora_weight, scaling, adapter_name=None):
    """get_weight_norm, which merging calls: summed in float32, rounded to the magnitude's type."""
    if adapter_name is not None or not isinstance(getattr(self, "weight", None), torch.Tensor):
        known = {} if adapter_name is None else {"adapter_name": adapter_name}
        return original(self, weight, lora_weight, scaling, **known)
    rows = transpose(weight, self.fan_in_fan_out) if weight.dim() == 2 else weight.flatten(1)
    norms = _dense_norm(rows, lora_weight.reshape(rows.shape), scaling)
    # The divisor of the magnitude as in forward, so that merging uses the same.
    return _as_magnitude(gain.magnitude_of(norms, self.weight.dtype), weight)


def _as_magnitude(norms, weight):
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
    """merge_safe and merge_unsafe of the variants. PEFT restores the base weight by dividing the merged one by the gain: rows
    that a gain of 0, or close to it, has erased are kept."""
    before = orig_weight.data  # merge_unsafe gives the parameter new memory and leaves this as it is
    merged = original(module, active_adapter, orig_weight)
    layer, norms = module.lora_magnitude_vector[active_adapter], module._caches[f"{active_adapter}-weight_norm"]
    gains = (layer.weight / norms).flatten().abs()
    info = torch.finfo(before.dtype)
    # Merged elements may be subnormal numbers, or 0, only in these rows.
    rows = (~(gains >= info.tiny / info.eps)).nonzero().flatten()  # of NaN, too
    if rows.numel():
        dim = int(before.dim() == 2 and layer.fan_in_fan_out)
        module._cache_store(f"{active_adapter}-dorajit-rows", (dim, rows, before.index_select(dim, rows)))
    return merged


@torch.no_grad()
def unmerge(original, module, active_adapter, orig_weight):
    """unmerge of the variants."""
    weight = original(module, active_adapter, orig_weight)
    kept = module._caches.pop(f"{active_adapter}-dorajit-rows", None)
    if kept is not None:
        dim, rows, elements = kept
        weight.index_copy_(dim, rows.to(weight.device), elements.to(weight))
    return weight
