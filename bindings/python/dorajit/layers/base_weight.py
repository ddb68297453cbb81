"""The weight of a quantized base layer, as a matrix of floating point numbers.

The node of a layer dequantizes it once in each pass, for the norm and the product together, and keeps nothing of its
size. Supported are layers whose product is that of the dequantized weight: 4 bits of bitsandbytes, HQQ, and weight-only
quantization of torchao. The product of bitsandbytes' 8 bits quantizes x, too, so that layer is composed of module calls.
"""

import sys

from dorajit.layers import dequantization, plain_linear


class Quantized:
    """A quantized base layer in one pass of its node.

    Attributes:
        module: the base layer.
        stored: the tensor that holds the quantized weight.
        dtype: the element type of the product outside of autocast; None: that of x.
        keeps_type: whether the output has x's element type under autocast, too.
        bias: [out_features], or None.
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


def of(module):
    """The Quantized of a base layer whose call does nothing but the linear operation; a text that tells why not for other
    layers."""
    read = _readers.get(type(module))
    if read is None:
        read = _readers[type(module)] = _reader(type(module))
    if plain_linear.has_own_call(module):
        return "the base layer has hooks or a forward of its own; remove them, or put hooks on the layer around it"
    return read(module)


def _reader(kind):
    return _KINDS.get((kind.__module__, kind.__name__), _not_quantized)


def _not_quantized(module):
    return f"the base layer is a {type(module).__name__}, whose product is not that of one known matrix"


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
        return f"the base layer {plain_linear.weight_and_bias(module)[1]}"
    if (kind.__name__ not in _WEIGHT_ONLY
            or getattr(weight, "act_quant_kwargs", None) is not None):
        return f"the weight is a {kind.__name__}, which is not quantization of the weight alone"
    return Quantized(module, getattr(weight, "qdata", weight), None, True, module._parameters["bias"],
                     weight.dequantize)


_KINDS = {("bitsandbytes.nn.modules", name): _of_bitsandbytes for name in ("Linear4bit", "LinearNF4", "LinearFP4")}
_KINDS |= {("hqq.core.quantize", "HQQLinear"): _of_hqq, ("torch.nn.modules.linear", "Linear"): _of_torch}
_WEIGHT_ONLY = {"Int8Tensor", "Float8Tensor", "AffineQuantizedTensor"}
_readers = {}  # class of a base layer -> function that returns its Quantized or None
