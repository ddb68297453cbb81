"""The three tiers of a layer's composition: fused training, fused inference, and eager PyTorch."""

import torch

from dorajit.layers.plain_linear import has_global_hook
from dorajit.operations import api, dispatch, eligibility, expression
from dorajit.distributed import frameworks

TRAINING, INFERENCE, EAGER = "fused training", "fused inference", "eager"


def tier(lora, base, gain):
    """The tier of a composition of these tensors.

    TRAINING saves scale * lora + base for the backward pass, if the magnitude is trained, and its
    backward pass is one launch. INFERENCE builds no graph. EAGER is PyTorch's operations: with
    PEFT_DORA_FUSED=0, in training with PEFT_DORA_FUSED_BACKWARD=0, and with DTensors. In the first two tiers,
    tensors that no kernel takes (dorajit.explain_dispatch) run in PyTorch.
    """
    if _is_eager(lora, base, gain):
        return EAGER
    return TRAINING if eligibility.builds_graph(lora, base, gain) else INFERENCE


def _is_eager(*tensors):
    return eligibility.why_switched_off(*tensors) is not None or any(map(frameworks.is_dtensor, tensors))


def total(lora, result, gain, scale, bias=None):
    """The output of a layer whose base layer has computed `result`: result + delta, with base = result - bias.

    Args:
        lora, result: of the same shape. They may have two element types; the output has that of their sum.
        gain, bias: one element per channel, the gain broadcastable; bias None: no bias.
    """
    if _is_eager(lora, result, gain):
        return api.apart(lora, result, gain, bias, scale, expression.compose)
    return api.fused_dora_compose_residual(lora, result, gain, scale, bias)


def delta(lora, base, gain, scale, fresh=False):
    """(gain - 1) * base + gain * scale * lora: the term that a layer adds to its base result.

    Args:
        lora, base: of the same shape. They may have two element types; the result has lora's.
        gain: one element per channel, broadcastable.
        fresh: the caller holds the only reference to lora, so that inference may write into it.
    """
    way = tier(lora, base, gain)
    if way == EAGER:
        return expression.compose(lora, base, gain, scale)
    inplace = (way == INFERENCE and fresh and (not lora.is_inference() or torch.is_inference_mode_enabled())
               and lora._base is None)
    return api.fused_dora_compose(lora, base, gain, scale, inplace)


def without_bias(result, bias, gain):
    """A base result minus the base layer's bias, which may be None."""
    return result if bias is None else result - dispatch.over_channels(bias.to(result.dtype), gain)


def is_fresh(module):
    """Whether only the caller of a module has its output: no hook has seen it."""
    return not (module._forward_hooks or has_global_hook())
