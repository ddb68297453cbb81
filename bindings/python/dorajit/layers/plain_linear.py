"""Whether a linear layer consists only of its weight and bias, so that a kernel may use them directly."""

import torch


def replaced_by(owner, name):
    """Where the code of a method comes from, as text, if not from the module of its class; None for the original. What
    functools.wraps copies, such as `__module__`, does not tell."""
    method = vars(owner).get(name)
    function = getattr(method, "__func__", method)
    if not hasattr(function, "__globals__"):
        return f"a {type(function).__name__}"
    module, file = function.__globals__.get("__name__"), function.__code__.co_filename
    # Code may also be compiled from a string with the namespace of a module. Folders differ in frozen programs.
    is_original = module == owner.__module__ and file.endswith(f"{module.rpartition('.')[2]}.py")
    return None if is_original else f"{module} ({file})"


_Linear = torch.nn.Linear
_forward = None if replaced_by(_Linear, "forward") else _Linear.forward  # None is the forward of no class
_PLAIN = (torch.nn.Parameter, torch.Tensor)
has_global_hook = torch.nn.modules.module._has_any_global_hook


def has_hooks(module):
    """Whether the module has hooks that its call would run."""
    return (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
            or module._backward_pre_hooks)


def weight_and_bias(module, kind=_Linear, forward=_forward):
    """(weight, bias) of a module of this class whose call is its forward with its parameters and nothing else, that is
    without hooks, a wrapper, a parametrization, or another forward; (None, None) for others. By default the module is a
    torch.nn.Linear with PyTorch's forward."""
    if type(module) is not kind or kind.forward is not forward or has_global_hook():
        return None, None
    if has_hooks(module) or "forward" in module.__dict__:
        return None, None
    own = module._parameters
    weight = own.get("weight")  # FSDP1 removes it and keeps views of its flat parameter elsewhere
    return (None, None) if type(weight) not in _PLAIN else (weight, own["bias"])


def factors(lora_A, lora_B):
    """(A, B) of two such modules without biases, or None."""
    a, of_a = weight_and_bias(lora_A)
    b, of_b = weight_and_bias(lora_B)
    return None if a is None or b is None or of_a is not None or of_b is not None else (a, b)
