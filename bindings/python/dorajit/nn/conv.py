"""DoRA over convolutions."""

from typing import Optional

import torch
from torch import Tensor, nn

from dorajit.layers import tiers
from dorajit.nn import layer


class _DoRAConv(layer.DoRALayer):
    """As DoRALinear, per channel; lora_A is a convolution like the base layer, lora_B a 1x1 convolution."""

    _base_type: type

    in_channels = layer.of_base("in_channels")
    out_channels = layer.of_base("out_channels")
    kernel_size = layer.of_base("kernel_size")
    stride = layer.of_base("stride")
    padding = layer.of_base("padding")
    dilation = layer.of_base("dilation")
    groups = layer.of_base("groups")
    padding_mode = layer.of_base("padding_mode")

    def __init__(self, base_layer: nn.Module, rank: int, alpha: float = 1.0, *, dropout: float = 0.0,
                 use_rslora: bool = False, dtype: Optional[torch.dtype] = None):
        name, wanted = type(self).__name__, self._base_type
        if not isinstance(base_layer, wanted):
            raise TypeError(f"{name}: argument `base_layer` is a {type(base_layer).__name__}; pass a "
                            f"torch.nn.{wanted.__name__}")
        if base_layer.groups != 1:
            raise ValueError(f"{name}: argument `base_layer` has {base_layer.groups} groups; only one group is "
                             "supported")
        super().__init__(base_layer, rank, alpha, dropout, use_rslora)
        like = {"device": base_layer.weight.device, "dtype": dtype or base_layer.weight.dtype,
                "bias": False}
        self._init_adapter(wanted(base_layer.in_channels, rank, base_layer.kernel_size, base_layer.stride,
                                  base_layer.padding, base_layer.dilation,
                                  padding_mode=base_layer.padding_mode, **like),
                           wanted(rank, base_layer.out_channels, 1, **like))

    @classmethod
    def from_conv(cls, conv: nn.Module, rank: int, alpha: float = 1.0, **options) -> "_DoRAConv":
        """The layer with an adapter; `options` as for the constructor."""
        return cls(conv, rank, alpha, **options)

    def _magnitude_shape(self, rows):
        return (1, rows) + (1,) * (self.base_layer.weight.dim() - 2)

    def forward(self, x: Tensor) -> Tensor:
        result = self.base_layer(x)
        if self.merged:
            return result
        if result.dim() != self.base_layer.weight.dim():
            raise self._shape_error(x, "give it a batch dimension")
        return self._adapted(x, result)

    def _delta_of_dropped(self, x, lora, gain, fresh):
        base = self.base_layer
        return tiers.delta(lora, base._conv_forward(x, base.weight.to(x.dtype), None), gain, self.scaling, fresh)


class DoRAConv1d(_DoRAConv):
    """DoRA over a torch.nn.Conv1d."""

    _base_type = nn.Conv1d


class DoRAConv2d(_DoRAConv):
    """DoRA over a torch.nn.Conv2d."""

    _base_type = nn.Conv2d


class DoRAConv3d(_DoRAConv):
    """DoRA over a torch.nn.Conv3d."""

    _base_type = nn.Conv3d
