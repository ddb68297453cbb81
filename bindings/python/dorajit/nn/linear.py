"""DoRA over a linear layer."""

from typing import Optional

import torch
from torch import Tensor, nn

from dorajit.layers import dropout as sliced
from dorajit.layers import linear, masks, plain_linear
from dorajit.nn import layer


class DoRALinear(layer.DoRALayer):
    """base_layer(x) + delta, delta = (g - 1) * (base without bias) + g * s * B A x.

    With active dropout, delta uses the low-rank result and the base result of the dropped-out input, as in PEFT.
    """

    in_features = layer.of_base("in_features")
    out_features = layer.of_base("out_features")

    def __init__(self, base_layer: nn.Linear, rank: int, alpha: float = 1.0, *, dropout: float = 0.0,
                 use_rslora: bool = False, dtype: Optional[torch.dtype] = None):
        """A new adapter, which does not change the output until it is trained.

        Args:
            base_layer: the base layer; it is frozen.
            rank: the rank of B A, 1 or more.
            alpha: s = alpha / rank, or alpha / sqrt(rank) with use_rslora.
            dropout: the probability of dropout on the adapter's input, 0 <= dropout < 1.
            dtype: the element type of lora_A and lora_B; None for that of the base weight. The magnitude is
                float32, or float64 if the base weight is.

        Raises:
            TypeError: base_layer is not a torch.nn.Linear, or its weight is not floating point.
            ValueError: rank or dropout is out of range, or the base weight is a DTensor.
        """
        if not isinstance(base_layer, nn.Linear):
            raise TypeError(f"DoRALinear: argument `base_layer` is a {type(base_layer).__name__}; pass "
                            "a torch.nn.Linear")
        super().__init__(base_layer, rank, alpha, dropout, use_rslora)
        like = {"device": base_layer.weight.device, "dtype": dtype or base_layer.weight.dtype}
        self._init_adapter(nn.Linear(base_layer.in_features, rank, bias=False, **like),
                           nn.Linear(rank, base_layer.out_features, bias=False, **like))

    @classmethod
    def from_linear(cls, linear: nn.Linear, rank: int, alpha: float = 1.0, **options) -> "DoRALinear":
        """The layer with an adapter; `options` as for the constructor."""
        return cls(linear, rank, alpha, **options)

    def forward(self, x: Tensor) -> Tensor:
        base = self.base_layer
        if x.shape[-1:] != (base.in_features,):
            raise self._shape_error(x, f"its last dimension must be {base.in_features}")
        if not self.merged:
            out = self._parts(x)
            if type(out) is not str:
                out = linear.at_once(*out)
            if type(out) is not str:
                return out
        result = base(x)
        return result if self.merged else self._adapted(x, result)

    def _parts(self, x):
        """The arguments of linear.at_once; a text that tells why not if the layer has to run as separate module calls."""
        a, b = plain_linear.factors(self.lora_A, self.lora_B)
        weight, bias = plain_linear.weight_and_bias(self.base_layer)
        magnitude = self._parameters.get("lora_magnitude_vector")
        if a is None:
            return b
        if weight is None:
            return f"the base layer {bias}"
        if magnitude is None:
            return "the magnitude is not a parameter of the layer"
        dropped = None
        if self._drops:
            dropped = masks.of_module(self.lora_dropout, a.dtype)
            if type(dropped) is str:
                return dropped
        return self, x, weight, a, b, magnitude, self.scaling, bias, None, dropped

    def _delta_of_dropped(self, x, lora, gain, fresh):
        return sliced.delta(x, self.base_layer.weight, lora, gain, self.scaling, fresh)
