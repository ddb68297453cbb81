"""Recomputes the magnitudes of untrained adapters from the norms."""

import torch
from peft.tuners.lora import dora
from peft.utils.other import transpose

from dorajit.norms import norm


@torch.no_grad()
def magnitudes(model):
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
            if any(one.is_meta for one in (weight, a, b, layer.weight)) or (a.any() and b.any()):
                continue
            if weight.dim() == 2:
                weight = transpose(weight, layer.fan_in_fan_out)
            if layer.weight.device != weight.device or a.device != weight.device:
                continue
            norms = norm.weight_norm(weight, a, b, 0.0)
            norms = norms.reshape(layer.weight.shape)
            step = max(1e-6, *(torch.finfo(one.dtype).eps for one in (weight, layer.weight)))
            if ((layer.weight - norms).abs() <= step * norms).all():
                layer.weight.copy_(norms)


def _factors(module, adapter):
    """(base weight, A, B); None if the layer is not a plain one of PEFT's."""
    base_layer = module.get_base_layer()
    weight = getattr(base_layer, "weight", None)
    if type(weight) is not torch.nn.Parameter or getattr(base_layer, "groups", 1) != 1:
        return None
    if adapter in module.lora_embedding_A:
        return weight, module.lora_embedding_A[adapter], module.lora_embedding_B[adapter]
    if adapter in module.lora_A:
        return weight, module.lora_A[adapter].weight, module.lora_B[adapter].weight
    return None
