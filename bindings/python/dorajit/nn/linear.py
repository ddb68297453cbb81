"""DoRA over a linear layer."""

import math
from typing import Optional

import torch
from torch import Tensor, nn

from dorajit.layers import dropout as sliced
from dorajit.layers import linear, plain_linear, tiers
from dorajit.nn import layer
from dorajit.distributed import gather


class DoRALinear(layer.DoRALayer):
    """base_layer(x) + delta, delta = (g - 1) * (base without bias) + g * s * B A x.

    With active dropout, delta uses the low-rank result and the base result of the dropped-out input, as in PEFT.
    """

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
        self.lora_A = nn.Linear(base_layer.in_features, rank, bias=False, **like)
        self.lora_B = nn.Linear(rank, base_layer.out_features, bias=False, **like)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)
        self._init_magnitude()

    @classmethod
    def from_linear(cls, linear: nn.Linear, rank: int, alpha: float = 1.0, **options) -> "DoRALinear":
        """The layer with an adapter; `options` as for the constructor."""
        return cls(linear, rank, alpha, **options)

    def forward(self, x: Tensor) -> Tensor:
        base = self.base_layer
        if x.shape[-1:] != (base.in_features,):
            raise layer.shape_error(self, "x", x.shape, f"its last dimension must be "
                                                        f"{base.in_features}")
        if not self.merged:
            out = self._at_once(x)
            if out is not None:
                return out
        result = base(x)
        if self.merged:
            return result
        given = x.to(self.lora_A.weight.dtype)
        if self._drops:
            return (result + self._delta(self.lora_dropout(given), x.dtype)).to(result.dtype)
        lora = self.lora_B(self.lora_A(given))
        return tiers.total(lora, result, self.gain(), self.scaling, self._bias(result)).to(result.dtype)

    def _at_once(self, x):
        """The output as one node or operator; None if the layer has to run as separate module calls."""
        if self._drops:
            return None
        found = plain_linear.parameters(self.base_layer, self.lora_A, self.lora_B)
        if found is None:
            return None
        (weight, bias), (a, of_a), (b, of_b) = found
        magnitude = self._parameters.get("lora_magnitude_vector")
        if magnitude is None or of_a is not None or of_b is not None:
            return None
        return linear.at_once(self, x, weight, a, b, magnitude, self.scaling, bias)

    def _delta(self, dropped, dtype):
        """The term that is added to the base result, computed from the dropped-out input."""
        gain = self.gain()
        lora, fresh = self.lora_B(self.lora_A(dropped)), tiers.is_fresh(self.lora_B)
        if gather.is_here(self.base_layer.weight):
            return sliced.delta(dropped, self.base_layer.weight, lora, gain, self.scaling, fresh)
        # The module's own forward gathers its weight, also for the backward pass.
        base = self._without_bias(self.base_layer(dropped.to(dtype)).to(lora.dtype), 0)
        return tiers.delta(lora, base, gain, self.scaling, fresh)
