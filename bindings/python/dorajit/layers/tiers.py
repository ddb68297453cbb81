"""The composition inside a layer: fused for training, fused for inference, or plain PyTorch."""

import torch

from dorajit.operations import api, eligibility, expression, residual
from dorajit.distributed import frameworks

_has_any_global_hook = torch.nn.modules.module._has_any_global_hook

TRAINING, INFERENCE, EAGER = "fused training", "fused inference", "eager"


def tier(lora, base, gain):
    """Which of the three ways a composition of these tensors takes.

    TRAINING keeps scale * lora + base for the backward pass, if the magnitude is trained, and its
    backward pass is one launch. INFERENCE has no graph. EAGER is PyTorch's operations, with
    PEFT_DORA_FUSED=0 and, in training, PEFT_DORA_FUSED_BACKWARD=0, and with DTensors. What no kernel takes
    (dorajit.explain_dispatch) runs in PyTorch inside the first two as well.
    """
    tensors = lora, base, gain
    if eligibility.why_switched_off(*tensors) is not None or any(map(frameworks.is_dtensor, tensors)):
        return EAGER
    return TRAINING if eligibility.builds_graph(*tensors) else INFERENCE


def total(lora, result, gain, scale, bias=None):
    """result + delta over result - bias: what a layer gives whose base layer gave result.

    Args:
        lora, result: of one shape; may be of two types, whose sum's type the total has.
        gain, bias: one element per channel, the gain broadcastable; bias None: nothing.
    """
    if tier(lora, result, gain) == EAGER:
        return residual.apart(lora, result, gain, bias, scale, expression.compose)
    return residual.fused_dora_compose_residual(lora, result, gain, scale, bias)


def delta(lora, base, gain, scale, fresh=False):
    """(gain - 1) * base + gain * scale * lora: what a layer adds to its base result.

    Args:
        lora, base: of one shape; may be of two types. The result has lora's.
        gain: one element per channel, broadcastable.
        fresh: nobody else needs lora, so that inference may write into it.
    """
    way = tier(lora, base, gain)
    if way == EAGER:
        return expression.compose(lora, base, gain, scale)
    if way == TRAINING:
        return api.fused_dora_compose_autograd(lora, base, gain, scale)
    writable = not lora.is_inference() or torch.is_inference_mode_enabled()
    inplace = fresh and writable and lora._base is None
    return api.fused_dora_compose(lora, base, gain, scale, inplace=inplace)


def is_fresh(module):
    """Whether nobody but its caller has what a module returned: no hook saw it."""
    return not (module._forward_hooks or _has_any_global_hook())
