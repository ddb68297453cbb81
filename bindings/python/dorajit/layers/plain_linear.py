"""Whether a torch.nn.Linear consists only of its weight and bias, so that a kernel may use them directly."""

import torch

_Linear = torch.nn.Linear
_forward = _Linear.forward
has_global_hook = torch.nn.modules.module._has_any_global_hook


def has_hooks(module):
    """Whether the module has hooks that its call would run."""
    return (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
            or module._backward_pre_hooks)


def parameters(base_layer, lora_A, lora_B):
    """(weight, bias, A, B) of the modules; None if a factor has a bias, or the call of a module would do more than the
    linear operation: with hooks, a wrapper, a parametrization, or a forward other than PyTorch's."""
    if _Linear.forward is not _forward or has_global_hook():
        return None
    found = []
    for module in (base_layer, lora_A, lora_B):
        if type(module) is not _Linear:
            return None
        if has_hooks(module) or "forward" in module.__dict__:
            return None
        own = module._parameters
        weight = own.get("weight")  # FSDP1 removes it and keeps views of its flat parameter elsewhere
        if weight is None or (found and own["bias"] is not None):
            return None
        found.append(weight)
    weight, a, b = found
    return weight, base_layer._parameters["bias"], a, b
