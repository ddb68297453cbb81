"""Whether a torch.nn.Linear is its weight and its bias and nothing else, so that a kernel may take those."""

import torch

_Linear = torch.nn.Linear
_forward = _Linear.forward
_has_global_hook = torch.nn.modules.module._has_any_global_hook


def has_hooks(module):
    """Whether a call of the module itself would be seen by hooks of its own."""
    return (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
            or module._backward_pre_hooks)


def parameters(*modules):
    """(weight, bias) of each, or None if a call of one would be seen, or would do more: by hooks, a wrapper, a
    parametrization, or another forward in the place of PyTorch's."""
    if _Linear.forward is not _forward or _has_global_hook():
        return None
    found = []
    for module in modules:
        if type(module) is not _Linear:
            return None
        if has_hooks(module) or "forward" in module.__dict__:
            return None
        own = module._parameters
        weight = own.get("weight")  # FSDP1 keeps the views of its flat parameter elsewhere
        if weight is None:
            return None
        found.append((weight, own["bias"]))
    return found
