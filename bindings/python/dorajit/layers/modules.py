"""The modules of a layer: whether calling them does nothing but a linear operation, so that a kernel may use their weights
directly.

The node of a layer dequantizes the weight of a quantized base layer once in each pass, for the norm and the product
together, and keeps nothing of its size. Supported are layers whose product is that of the dequantized weight: 4 bits of
bitsandbytes, HQQ, and weight-only quantization of torchao. The product of bitsandbytes' 8 bits quantizes x, too, so that
layer is composed of module calls.
"""

import sys

import torch

from dorajit.checks import PLAIN
from dorajit.layers import dequantization


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


class Quantized:
    """A quantized base layer in one pass of its node.

    Attributes:
        stored: the tensor that holds the quantized weight.
        dtype: the element type of the product outside of autocast; None: that of x.
        keeps_type: whether the output has x's element type under autocast, too.
    """

    __slots__ = "module", "stored", "dtype", "keeps_type", "bias", "_dequantize", "_dense"

    def __init__(self, module, stored, dtype, keeps_type, bias, dequantize):
        self.module, self.stored, self.dtype, self.keeps_type, self.bias = module, stored, dtype, keeps_type, bias
        self._dequantize, self._dense = dequantize, None

    def dense(self):
        """The weight, [out_features, in_features], dequantized at the first call of a pass."""
        if self._dense is None:
            self._dense = self._dequantize()
        return self._dense

    def is_dense(self):
        """Whether the present pass has dequantized the weight."""
        return self._dense is not None

    def release(self):
        """Ends a pass."""
        self._dense = None


def dense(weight):
    """The matrix of a weight: a tensor or a Quantized."""
    return weight.dense() if type(weight) is Quantized else weight


def quantized(module):
    """The Quantized of a base layer whose call does nothing but the linear operation; a text that tells why not for other
    layers."""
    kind = type(module)
    read = _KINDS.get((kind.__module__, kind.__name__))
    if has_own_call(module):
        return "the base layer has hooks or a forward of its own; remove them, or put hooks on the layer around it"
    if read is None:
        return f"the base layer is a {kind.__name__}, whose product is not that of one known matrix"
    return read(module)


def _of_bitsandbytes(module):
    weight = module._parameters.get("weight")
    state = getattr(weight, "quant_state", None)
    # A layer for inference on a CPU may have its weight in another layout, which only its own product reads.
    if state is None or len(state.shape) != 2 or getattr(state, "packing_format_for_cpu", False):
        return "bitsandbytes has not quantized the base layer, or packed it for inference on a CPU; move it to its device"
    if not module.compute_type_is_set:
        return "the base layer chooses its compute type in its first call, after which it is one node; set compute_dtype"
    dequantize, data = sys.modules["bitsandbytes.functional"].dequantize_4bit, weight.data
    def dense():  # the module may replace both before the backward pass
        made = dequantization.weight_of(data, state)
        return dequantize(data, state) if made is None else made
    return Quantized(module, weight, module.compute_dtype, True, module._parameters["bias"], dense)


def _of_hqq(module):
    if not module.ready or module.W_q is None:
        return "HQQ has not quantized the base layer yet"
    return Quantized(module, module.W_q, None, False, module.bias, module.dequantize)


def _of_torch(module):
    """torch.nn.Linear with a quantized weight of torchao."""
    weight = module._parameters.get("weight")
    kind = type(weight)
    if not kind.__module__.startswith("torchao."):
        return f"the base layer {weight_and_bias(module)[1]}"
    if kind.__name__ not in _WEIGHT_ONLY or getattr(weight, "act_quant_kwargs", None) is not None:
        return f"the weight is a {kind.__name__}, which is not quantization of the weight alone"
    return Quantized(module, getattr(weight, "qdata", weight), None, True, module._parameters["bias"], weight.dequantize)


_KINDS = {("bitsandbytes.nn.modules", name): _of_bitsandbytes for name in ("Linear4bit", "LinearNF4", "LinearFP4")}
_KINDS |= {("hqq.core.quantize", "HQQLinear"): _of_hqq, ("torch.nn.modules.linear", "Linear"): _of_torch}
_WEIGHT_ONLY = {"Int8Tensor", "Float8Tensor", "AffineQuantizedTensor"}
