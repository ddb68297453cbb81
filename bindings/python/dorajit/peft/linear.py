"""A linear layer of PEFT with one DoRA adapter as one autograd node (dorajit.layers.linear), or as one operator
under torch.compile."""

import functools

import torch
from peft.tuners.lora import dora, variants
from peft.tuners.lora.layer import Linear

from dorajit.layers import linear, plain_linear
from dorajit.operations import gain
from dorajit.peft import layers


def forward(original, self, x, *args, **kwargs):
    """lora.Linear.forward. PEFT's method casts x to the type of lora_A for the adapter; the node casts the factors."""
    if not args and not kwargs:
        out = _at_once(self, x)
        if out is not None:
            return out
    return original(self, x, *args, **kwargs)


def _at_once(module, x):
    """The output as one node or operator; None if PEFT has to run the layer as separate module calls."""
    if type(module) is not Linear or module._disable_adapters or module.merged_adapters or module.fan_in_fan_out:
        return None
    name = module._active_adapter
    if type(name) is not str:
        if len(name) != 1:
            return None
        name, = name
    variant, layer_class = variants.DoraLinearVariant, dora.DoraLinearLayer
    if type(module.lora_variant.get(name)) is not variant or not getattr(module, "cast_input_dtype_enabled", True):
        return None
    parts = module._modules
    layer = parts["lora_magnitude_vector"]._modules.get(name)
    if (type(layer) is not layer_class or layer.fan_in_fan_out or plain_linear.has_hooks(layer)
            or "forward" in layer.__dict__
            or not (layers.is_installed(variant.forward) and layers.is_installed(layer_class.forward))):
        return None
    if module.training and type(parts["lora_dropout"]._modules[name]) is not torch.nn.Identity:
        return None
    scaling = module.scaling[name]
    if isinstance(scaling, torch.Tensor):
        return None
    found = plain_linear.parameters(parts["base_layer"], parts["lora_A"]._modules[name],
                                    parts["lora_B"]._modules[name])
    if found is None:
        return None
    weight, bias, a, b = found
    magnitude = layer._parameters.get("weight")
    if magnitude is None:
        return None
    gains = None
    if layer.__dict__.get("_dora_cache") or layers.is_caching(layer):
        gains = functools.partial(_cached_gains, parts["base_layer"], name)
    return linear.at_once(layer, x, weight, a, b, magnitude, scaling, bias, gains)


def _cached_gains(base_layer, name, layer, weight, a, b, magnitude, scale):
    """(divisor, gain) as in dorajit.layers.linear, from the norm that PEFT's DoraCaching caches; they are cached
    beside it."""
    norms = layers.norms(layer, weight, a, b, scale, base_layer, name)
    key = f"dorajit-gain-{name}"
    is_kept = layers.is_caching(layer) and not magnitude.is_inference()
    state = (id(norms), magnitude._version, magnitude.data_ptr()) if is_kept else None
    kept = layer._cache_get(key, None) if is_kept else None
    if kept is not None and kept[0] == state:
        return kept[1]
    with torch.no_grad():
        made = gain.with_divisor(magnitude, norms)
    if is_kept:
        layer._cache_store(key, (state, made))
    return made
