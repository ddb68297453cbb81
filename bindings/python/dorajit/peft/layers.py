"""Replacements of methods of PEFT's DoRA layers.

The first argument of each is the method that it replaces (`original`), which it calls for cases that it does not
support. The other arguments are those of that method.
"""

import functools
import inspect

import torch
from peft.tuners.lora import dora

from dorajit.checks import PLAIN
from dorajit.control import state
from dorajit.layers import dropout, explain, modules, recomputation
from dorajit.norms import frozen, norm, precision
from dorajit.operations import api, eligibility, expression, gain
from dorajit.operations.eligibility import SOMEBODY
from dorajit.distributed import gather

def _forward_of(kind):
    """The replacement of the forward of a layer over base layers of this class. For a dropped-out input PEFT passes no
    base result."""
    def forward(original, self, x, *, lora_A, lora_B, scaling, base_layer, base_result=None, adapter_name="default"):
        reason, weight, factor = _gain_of(kind, self, x, lora_A, lora_B, scaling, base_layer, base_result)
        if reason is not None:
            return _decline(original, reason, self, x, lora_A=lora_A, lora_B=lora_B, scaling=scaling,
                            base_layer=base_layer, base_result=base_result, adapter_name=adapter_name)
        lora = lora_B(lora_A(x))
        if base_result is not None or not gather.is_here(base_layer.weight):
            base = base_layer(x) if base_result is None else base_result  # a module gathers its own weight
            base = expression.without_bias(base, gather.constant(base_layer, "bias"), factor)
        elif kind is torch.nn.Linear:
            return dropout.delta(x, weight, lora, factor, scaling)
        else:
            base = self.conv_fn(x, weight.to(x.dtype), bias=None, stride=base_layer.stride, padding=base_layer.padding,
                                dilation=base_layer.dilation)
        return api.fused_dora_compose_autograd(lora, base, factor, scaling)
    return forward


def _variant_forward_of(kind):
    """The replacement of a variant's forward: the base result plus the layer's delta, in one pass, if the delta uses
    that base result."""
    def forward(original, module, active_adapter, x, result, **kwargs):
        base_layer, is_low_rank = _base_layer(module), state.dropout == "low_rank" and _drops(module, active_adapter)
        layer = None if _grouped(kind, base_layer) else _foldable(module, active_adapter)
        if layer is None and not is_low_rank:
            with precision.of_adapter(result):
                return original(module, active_adapter=active_adapter, x=x, result=result, **kwargs)
        if is_low_rank:
            x = module.lora_dropout[active_adapter](x)
        parts = module._modules
        lora_A, lora_B = parts["lora_A"]._modules[active_adapter], parts["lora_B"]._modules[active_adapter]
        scaling = module.scaling[active_adapter]
        with precision.of_adapter(result):
            if layer is not None:
                reason, _, factor = _gain_of(kind, layer, x, lora_A, lora_B, scaling, base_layer, result)
                if reason is None:
                    return api.fused_dora_compose_residual(lora_B(lora_A(x)), result, factor, scaling,
                                                           gather.constant(base_layer, "bias"))
            if is_low_rank:  # PEFT's method would drop x again, and give the delta no base result
                return result + module.lora_magnitude_vector[active_adapter](
                    x, lora_A=lora_A, lora_B=lora_B, scaling=scaling, base_layer=base_layer, base_result=result)
            return original(module, active_adapter=active_adapter, x=x, result=result, **kwargs)
    return forward


def only_adapter(module):
    """The name of the module's only active adapter; None if there are others, or if it is merged or disabled."""
    if module._disable_adapters or module.merged_adapters:
        return None
    name = module._active_adapter
    if type(name) is str:
        return name
    return name[0] if len(name) == 1 else None


def module_forward(original, self, x, *args, **kwargs):
    """lora.Embedding.forward and that of convolutions. For one DoRA adapter it does PEFT's operations without the host
    time of PEFT's look-ups, which pays for that of the variant's replacement."""
    if not args and kwargs.keys() == {"adapter_names"} and kwargs["adapter_names"] is not None:
        return of_mixed_batch(original, of_adapter, self, x, **kwargs)
    name = None if args or kwargs else only_adapter(self)
    forward = None if name is None else getattr(self.lora_variant.get(name), "forward", None)
    if forward is None or not is_installed(forward):
        return original(self, x, *args, **kwargs)
    return of_adapter(self, x, name)


def of_adapter(self, x, name):
    """The forward of a module with this DoRA adapter."""
    result = self._modules["base_layer"](x)
    lora_A = self._modules["lora_A"]._modules.get(name)  # embeddings have none
    if lora_A is not None:
        dtype = lora_A.weight.dtype
        if x.dtype is not dtype:
            x = self._cast_input_dtype(x, dtype)
    return self.lora_variant[name].forward(self, active_adapter=name, x=x, result=result).to(result.dtype)


def of_mixed_batch(original, of_adapter, module, x, adapter_names):
    """The forward of a module for a batch whose rows have different adapters, PEFT's `adapter_names`, which PEFT refuses for
    DoRA: one call of `of_adapter`, or for other adapters of PEFT's forward, for all rows of an adapter."""
    has_dora = module.use_dora
    if module.disable_adapters:
        return original(module, x, adapter_names=["__base__"] * len(adapter_names))
    if not any(has_dora.get(name) for name in adapter_names):
        return original(module, x, adapter_names=adapter_names)
    module._check_forward_args(x, adapter_names=["__base__" if has_dora.get(name) else name for name in adapter_names])
    order, results = [], []
    for name in dict.fromkeys(adapter_names):
        rows = [row for row, one in enumerate(adapter_names) if one == name]
        part = x if len(rows) == len(x) else x[rows]
        results.append(of_adapter(module, part, name) if has_dora.get(name)
                       else original(module, part, adapter_names=[name] * len(rows)))
        order += rows
    return results[0] if len(results) == 1 else torch.cat(results)[sorted(range(len(order)), key=order.__getitem__)]


def _is_of_torch(base_layer):
    return type(base_layer).__module__.startswith("torch.nn.modules.")


def _base_layer(module):
    """module.get_base_layer(), which takes longer: it looks for the base layer of the base layer."""
    base_layer = module._modules["base_layer"]
    return base_layer if _is_of_torch(base_layer) else module.get_base_layer()


def _gain_of(kind, layer, x, lora_A, lora_B, scaling, base_layer, base_result):
    """(None, the weight, the gain) of a layer over a base layer of this class; (reason, None, None) if the call has to
    be left to PEFT."""
    reason = why_declined(kind, layer, x, lora_A, lora_B, scaling, base_layer, base_result)
    if reason is not None:
        return reason, None, None
    with gather.whole(base_layer, lora_A, lora_B):
        weight = _dequantized(base_layer) if kind is torch.nn.Linear else base_layer.weight
        reason = unfit(weight)
        if reason is not None:
            return reason, None, None
        if kind is torch.nn.Linear and layer.fan_in_fan_out:
            weight = weight.t()
        return None, weight, _gain(layer, weight, lora_A.weight, lora_B.weight, scaling, base_layer)


def why_declined_embedding(layer, a, b, scaling, base_layer):
    """why_declined for an embedding."""
    reason = _unfit_scaling(scaling) or unfit(base_layer.weight) or unfit(a) or unfit(b)
    if reason is None and type(layer) is not dora.DoraEmbeddingLayer and (
            gather.unwrapped(layer) is not layer or gather.is_fsdp2_module(layer)):
        # FSDP reduces the gradient only if the wrapped module is called.
        reason = "FSDP wraps the magnitude of an embedding by itself"
    return reason


_Conv = torch.nn.modules.conv._ConvNd
linear_forward, conv_forward = _forward_of(torch.nn.Linear), _forward_of(_Conv)
linear_variant_forward, conv_variant_forward = _variant_forward_of(torch.nn.Linear), _variant_forward_of(_Conv)


def _drops(module, adapter):
    return module.training and dropout.drops(module._modules["lora_dropout"]._modules[adapter])


def _foldable(module, adapter):
    """The DoRA layer of an adapter if its separate call can be skipped: it uses the module's base result, its
    forward is the replacement, and no hook or wrapper needs its output. None otherwise."""
    if _drops(module, adapter) and state.dropout != "low_rank":
        return None
    layer = module._modules["lora_magnitude_vector"]._modules[adapter]
    if not is_installed(type(layer).forward):
        return None
    return None if modules.has_own_call(layer) or modules.has_global_hook() else layer


def is_installed(method):
    """Whether the method is a replacement, and not a wrapper around one."""
    return getattr(method, "as_installed", None) is method


def embedding_variant_forward(original, module, active_adapter, x, result, **kwargs):
    """DoraEmbeddingVariant.forward"""
    parts = module._modules
    layer = parts["lora_magnitude_vector"]._modules[active_adapter]
    base_layer, scaling = _base_layer(module), module.scaling[active_adapter]
    weight = base_layer.weight
    of_a, of_b = parts["lora_embedding_A"]._parameters, parts["lora_embedding_B"]._parameters
    if active_adapter in of_a and active_adapter in of_b:
        a, b = of_a[active_adapter], of_b[active_adapter]  # DeepSpeed gathers what is read by []
    else:  # FSDP1 keeps views of its flat parameter as attributes
        a, b = module.lora_embedding_A[active_adapter], module.lora_embedding_B[active_adapter]
    reason = why_declined_embedding(layer, a, b, scaling, base_layer)
    if reason is not None:
        return _decline(original, reason, module, active_adapter=active_adapter, x=x, result=result, **kwargs)
    with precision.of_adapter(result):
        with gather.whole(base_layer, layer):
            factor = _gain(layer, weight.T, a, b, scaling, base_layer)
        lora = module._embed(x, a.T) @ b.T
    embed_scale = module._get_embed_scale() if hasattr(base_layer, "embed_scale") else None
    if embed_scale is not None:
        lora = lora * embed_scale.to(lora.dtype)
    return api.fused_dora_compose_residual(lora, result, factor, scaling)


def _gain(layer, weight, a, b, scaling, base_layer):
    """The gain, differentiable for the magnitude."""
    magnitude = layer.weight
    factors = norm.factors_of_layer(weight, a, b)
    kept, of_base = kept_of(layer), stored(base_layer)
    operands = weight if of_base is None else of_base, a, b
    if eligibility.is_compiling() or eligibility.who_sees(weight, a, b, magnitude, scaling) == SOMEBODY:
        norms = frozen.made(kept, operands, (scaling, factors[0].dtype), lambda: norm.weight_norm(weight, *factors, scaling))
        return gain.gain(magnitude, norms)
    recomputation.note(layer)
    divisor, made = frozen.made(kept, (*operands, magnitude), (scaling, factors[0].dtype),
                                lambda: norm.divisor_and_gain(weight, *factors, magnitude, scaling))
    if not eligibility.builds_graph(magnitude):
        return made
    return (magnitude if magnitude.dtype is divisor.dtype else magnitude.to(divisor.dtype)) / divisor


def kept_of(layer):
    """The Kept of a layer inside PEFT's DoraCaching or dorajit.frozen_weights, else None. The first pass outside of
    DoraCaching clears PEFT's cache."""
    if eligibility.is_compiling():
        return None
    if getattr(dora, "ENABLE_DORA_CACHING", False) and not layer.training:
        kept = layer._cache_get("dorajit", None)
        if kept is None:
            kept = frozen.Kept()
            layer._cache_store("dorajit", kept)
        return kept
    if getattr(layer, "_dora_cache", None):  # PEFT 0.18 has none
        layer._cache_clear()
    return frozen.of(layer)


def stored(base_layer):
    """The tensor in which the base layer stores its weight; None if it is not a tensor. An HQQ layer has no
    `weight` but `W_q`."""
    kept = None if _is_of_torch(base_layer) else getattr(base_layer, "W_q", None)
    kept = getattr(base_layer, "weight", None) if kept is None else kept
    return kept if isinstance(kept, torch.Tensor) else None


def _dequantized(base_layer):
    """The weight in floating point. PEFT's own function is called only if needed: torch.compile cannot trace it."""
    if not hasattr(base_layer, "W_q") and (type(base_layer.weight) in PLAIN or gather.is_dtensor(base_layer.weight)):
        return base_layer.weight
    return dora.dequantize_module_weight(base_layer)


def why_declined(kind, layer, x, lora_A, lora_B, scaling, base_layer, base_result):
    """The reason, as text, why a call is left to PEFT whatever the base weight is, or None."""
    return (_grouped(kind, base_layer) or _unfit_scaling(scaling)
            or _unsupported(kind, layer, x, lora_A, lora_B, base_layer, base_result))


def _unsupported(kind, layer, x, lora_A, lora_B, base_layer, base_result):
    for name, module in (("lora_A", lora_A), ("lora_B", lora_B)):
        own = module._parameters
        if (isinstance(module, kind) and type(module).__module__ == kind.__module__ and own.get("bias") is None
                and type(own.get("weight")) in PLAIN):
            continue
        module = gather.unwrapped(module)
        if not isinstance(module, kind) or (type(module).__module__ != kind.__module__
                                            and not gather.is_fsdp2_module(module)):
            return f"`{name}` is a {type(module).__module__}.{type(module).__name__}"
        if module.bias is not None:
            return f"`{name}` has a bias"
        if unfit(module.weight):
            return f"`{name}`: {unfit(module.weight)}"
    if kind is not torch.nn.Linear and unfit(base_layer.weight):
        return unfit(base_layer.weight)
    if any(map(gather.is_dtensor, (x, base_result))):  # tensor parallelism
        return "the input or the base result is a DTensor"
    if (kind is torch.nn.Linear and base_result is not None and gather.is_dtensor(getattr(base_layer, "weight", None))
            and base_result.shape[-1] != layer.weight.numel()):
        return "the base result has only the columns of one rank"
    return None


def _grouped(kind, base_layer):
    is_whole = kind is torch.nn.Linear or base_layer.groups == 1
    return None if is_whole else f"the convolution has {base_layer.groups} groups"


def _unfit_scaling(scaling):
    return "the scaling is a Tensor" if isinstance(scaling, torch.Tensor) else None


def unfit(weight):
    if type(weight) in PLAIN:
        return None
    if not isinstance(weight, torch.Tensor):
        return f"the weight is a {type(weight).__name__}"
    if not eligibility.is_compiling() and not gather.is_dtensor(weight) and (
            type(weight).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__):
        return f"the weight is a {type(weight).__name__}, which has its own __torch_dispatch__"
    return None


@functools.cache
def _takes_adapter_name(method):
    return "adapter_name" in inspect.signature(method).parameters


def _decline(original, reason, *args, adapter_name=None, **kwargs):
    explain.note_declined(reason)
    if adapter_name is not None and _takes_adapter_name(original):
        kwargs["adapter_name"] = adapter_name
    return original(*args, **kwargs)
