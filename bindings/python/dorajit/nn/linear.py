"""DoRA over a linear layer."""

from torch import Tensor, nn

from dorajit.layers import dropout, linear, modules
from dorajit.nn import layer


class DoRALinear(layer.DoRALayer):
    """base_layer(x) + delta, delta = (g - 1) * (base without bias) + g * s * B A x.

    With active dropout, delta uses the low-rank result and the base result of the dropped-out input, as in PEFT.
    """

    _base_type = nn.Linear

    in_features = layer.of_base("in_features")
    out_features = layer.of_base("out_features")

    @classmethod
    def from_linear(cls, linear: nn.Linear, rank: int, alpha: float = 1.0, **options) -> "DoRALinear":
        """The layer with an adapter; `options` as for the constructor."""
        return cls(linear, rank, alpha, **options)

    def _new_factors(self, base, rank, options):
        return nn.Linear(base.in_features, rank, **options), nn.Linear(rank, base.out_features, **options)

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
        a, b = modules.factors(self.lora_A, self.lora_B)
        weight, bias = modules.weight_and_bias(self.base_layer)
        magnitude = self._parameters.get("lora_magnitude_vector")
        if a is None:
            return b
        if weight is None:
            return f"the base layer {bias}"
        if magnitude is None:
            return "the magnitude is not a parameter of the layer"
        dropped = None
        if self._drops:
            dropped = dropout.of_module(self.lora_dropout, a.dtype)
            if type(dropped) is str:
                return dropped
        return self, x, weight, a, b, magnitude, self.scaling, bias, None, dropped

    def _delta_of_dropped(self, x, lora, gain):
        return dropout.delta(x, self.base_layer.weight, lora, gain, self.scaling)
