"""Helpers of the C++ extension's tests, which compare a layer's node in C++ with that in Python."""

import torch
from dorajit import cpp_extension
from dorajit.norms import norm
from linear_layers import SCALE


def is_compiled(out):
    """Whether the autograd node of the output is that of the extension."""
    return out.grad_fn.name().endswith("DoraLinear>")


def each_way(run):
    """The results of a function with the extension and without it."""
    module, found = cpp_extension.module, []
    for one in module, None:
        cpp_extension.module = one
        try:
            found.append(run())
        finally:
            cpp_extension.module = module
    return found


def assert_same(found, expected):
    """Compares tensors to the bit, and other values by ==."""
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, torch.Tensor):
            assert one.dtype is other.dtype and one.shape == other.shape and torch.equal(one, other)
        else:
            assert one == other


def with_parameters(of):
    """The operands as parameters of a layer, each with another version."""
    made = {name: torch.nn.Parameter(of[name].detach(), requires_grad=of[name].requires_grad)
            for name in ("weight", "lora_A", "lora_B", "magnitude")}
    with torch.no_grad():
        for i, one in enumerate(made.values()):
            for _ in range(i):
                one.mul_(1)
    return {**of, **made}


def saving(kept):
    """Saved-tensor hooks that append copies of saved tensors to a list."""
    return torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one.clone()) or one, lambda one: one)


def error_of(run):
    try:
        run()
    except Exception as error:
        return type(error), str(error)
    return None


def operands_of(of, is_one_launch=False):
    """The arguments that dorajit.layers.linear passes to the extension for a forward pass; the gain is the fifth, the
    bias the sixth."""
    gain = norm.divisor_and_gain(of["weight"], of["lora_A"], of["lora_B"], of["magnitude"].detach(), SCALE)[1]
    return [of["x"], of["weight"], of["lora_A"], of["lora_B"], gain, of["bias"], SCALE, is_one_launch]


def node_of(of, has_float_products=False):
    """The further arguments for a node."""
    divisor = norm.divisor_and_gain(of["weight"], of["lora_A"], of["lora_B"], of["magnitude"].detach(), SCALE)[0]
    return [of["lora_A"], of["lora_B"], of["magnitude"], divisor, has_float_products, False]
