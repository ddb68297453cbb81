"""A linear layer of PEFT with one DoRA adapter as one autograd node (dorajit.layers.node), or as one operator under
torch.compile."""

import sys

import torch
from peft.tuners.lora import dora, variants
from peft.tuners.lora.layer import Linear
from transformers.pytorch_utils import Conv1D

from dorajit.layers import dropout, linear, modules, recomputation
from dorajit.operations import eligibility
from dorajit.peft import layers

# Classes of adapters over quantized base layers: (module, class). Their forward casts x only outside of autocast.
QUANTIZED = (("peft.tuners.lora.bnb", "Linear4bit"), ("peft.tuners.lora.hqq", "HqqLoraLinear"))
_TORCHAO = ("peft.tuners.lora.torchao", "TorchaoLoraLinear")  # has the forward of lora.Linear
_Identity = torch.nn.Identity
_CONV1D = Conv1D, Conv1D.forward
_NOT_ALONE = "several adapters are active; activate one"


def forward(original, self, x, *args, **kwargs):
    """The forward of an adapter over a linear layer. PEFT's method casts x to the type of lora_A for the adapter; the
    node casts the factors."""
    if not args and not kwargs:
        out = _at_once(parts(self, x))
        if out is not None:
            return out
    elif not args and kwargs.keys() == {"adapter_names"} and kwargs["adapter_names"] is not None:
        return layers.of_mixed_batch(original, _of_adapter, self, x, **kwargs)
    return original(self, x, *args, **kwargs)


def _of_adapter(module, x, name):
    out = _at_once(parts(module, x, name))
    return layers.of_adapter(module, x, name) if out is None else out


def _at_once(given):
    """The output from what `parts` returns; None if PEFT has to run the layer."""
    out = given if type(given) is str else linear.at_once(*given)
    if type(out) is str:
        return None
    if not eligibility.is_compiling():
        recomputation.note(given[0])
    return out


def quantized_classes():
    """The classes of QUANTIZED of this PEFT whose packages are installed."""
    found = (getattr(sys.modules.get(module), name, None) for module, name in QUANTIZED)
    return [one for one in found if one is not None]


def _names(kind):
    return kind.__module__, kind.__name__


def parts(module, x, name=None):
    """The arguments of linear.at_once for this adapter, or the only active one; a text that tells why not if PEFT has to
    run the layer as separate module calls."""
    kind = type(module)
    casts_always = kind is Linear or _names(kind) == _TORCHAO
    name = (name or layers.only_adapter(module)) if casts_always or _names(kind) in QUANTIZED else None
    if name is None:
        return _NOT_ALONE if casts_always or _names(kind) in QUANTIZED else f"PEFT's {kind.__name__} has no node"
    variant, layer_class = variants.DoraLinearVariant, dora.DoraLinearLayer
    if type(module.lora_variant.get(name)) is not variant or not getattr(module, "cast_input_dtype_enabled", True):
        return "the adapter is not PEFT's DoRA, or its cast of the input is switched off"
    children = module._modules
    layer = children["lora_magnitude_vector"]._modules.get(name)
    if (type(layer) is not layer_class or layer.fan_in_fan_out is not module.fan_in_fan_out
            or modules.has_own_call(layer)
            or not (layers.is_installed(variant.forward) and layers.is_installed(layer_class.forward))):
        return "PEFT's DoRA layer has hooks, a wrapper, or another forward; remove them"
    scaling = module.scaling[name]
    if isinstance(scaling, torch.Tensor):
        return "the scaling is a Tensor; make it a float"
    a, b = modules.factors(children["lora_A"]._modules[name], children["lora_B"]._modules[name])
    if a is None:
        return b
    magnitude = layer._parameters.get("weight")
    if magnitude is None:
        return "the magnitude is not a parameter of PEFT's DoRA layer"
    dropped = None
    if module.training:
        of_input = children["lora_dropout"]._modules[name]
        if type(of_input) is not _Identity and dropout.drops(of_input):
            casts = casts_always or not torch.is_autocast_enabled()  # as PEFT asks, of CUDA's autocast alone
            dropped = dropout.of_module(of_input, a.dtype if casts else x.dtype)
            if type(dropped) is str:
                return dropped
    base_layer = children["base_layer"]
    if module.fan_in_fan_out:
        weight, bias = modules.weight_and_bias(base_layer, *_CONV1D)
        if weight is None:
            return f"the base layer {bias}"
        weight = weight.t()
    else:
        weight, bias = modules.weight_and_bias(base_layer)
    if weight is None:
        weight = modules.quantized(base_layer)
        if type(weight) is str:
            return weight
        bias = weight.bias
    return layer, x, weight, a, b, magnitude, scaling, bias, layers.kept_of(layer), dropped
