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


def has_own_call(module):
    """Whether the module has hooks that its call would run, or a forward that is not that of its class."""
    own = module.__dict__
    return bool(own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
                or own["_backward_pre_hooks"] or "forward" in own)


def weight_and_bias(module, kind=_Linear, forward=_forward):
    """(weight, bias) of a module of this class whose call is its forward with its parameters and nothing else, that is
    without hooks of its own, a wrapper, a parametrization, or another forward; (None, None) for others. By default the
    module is a torch.nn.Linear with PyTorch's forward."""
    if type(module) is not kind or kind.forward is not forward or has_own_call(module):
        return None, None
    own = module._parameters
    weight = own.get("weight")  # FSDP1 removes it and keeps views of its flat parameter elsewhere
    return (None, None) if type(weight) not in _PLAIN else (weight, own["bias"])


def factors(lora_A, lora_B):
    """(A, B) of two such modules without biases, or None; also None while a hook of all modules is registered."""
    if has_global_hook():
        return None
    a, of_a = weight_and_bias(lora_A)
    b, of_b = weight_and_bias(lora_B)
    return None if a is None or b is None or of_a is not None or of_b is not None else (a, b)
