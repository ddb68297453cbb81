"""Whether a linear layer consists only of its weight and bias, so that a kernel may use them directly."""

import torch

from dorajit.checks import PLAIN


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
has_global_hook = torch.nn.modules.module._has_any_global_hook


def has_own_call(module):
    """Whether the module has hooks that its call would run, or a forward that is not that of its class."""
    own = module.__dict__
    return bool(own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
                or own["_backward_pre_hooks"] or "forward" in own)


def weight_and_bias(module, kind=_Linear, forward=_forward):
    """(weight, bias) of a module of this class whose call is its forward with its parameters and nothing else, that is
    without hooks of its own, a wrapper, a parametrization, or another forward; (None, what differs) for others. By default
    the module is a torch.nn.Linear with PyTorch's forward."""
    if type(module) is not kind or kind.forward is not forward:
        return None, "has another class, such as a wrapper's or a parametrization's, or another forward"
    if has_own_call(module):
        return None, "has hooks or a forward of its own; remove them, or put hooks on the layer around it"
    own = module._parameters
    weight = own.get("weight")  # FSDP1 removes it and keeps views of its flat parameter elsewhere
    return (None, "has no plain tensor as weight") if type(weight) not in PLAIN else (weight, own["bias"])


def factors(lora_A, lora_B):
    """(A, B) of two such modules without biases; (None, what differs) for others, and while a hook of all modules is
    registered."""
    if has_global_hook():
        return None, "lora_A runs global module hooks; remove them"
    a, of_a = weight_and_bias(lora_A)
    b, of_b = weight_and_bias(lora_B)
    if a is None or of_a is not None:
        return None, "lora_A " + (of_a if a is None else "has a bias; create it without")
    if b is None or of_b is not None:
        return None, "lora_B " + (of_b if b is None else "has a bias; create it without")
    return a, b
