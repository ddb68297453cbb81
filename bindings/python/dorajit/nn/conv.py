"""DoRA over convolutions."""

from torch import Tensor, nn

from dorajit.nn import layer
from dorajit.operations import api


class _DoRAConv(layer.DoRALayer):
    """As DoRALinear, per channel; lora_A is a convolution like the base layer, lora_B a 1x1 convolution."""

    in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode = map(layer.of_base, (
        "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"))

    @classmethod
    def from_conv(cls, conv: nn.Module, rank: int, alpha: float = 1.0, **options) -> "_DoRAConv":
        """The layer with an adapter; `options` as for the constructor."""
        return cls(conv, rank, alpha, **options)

    def _unfit(self, base_layer):
        return f"{base_layer.groups} groups; only one group is supported" if base_layer.groups != 1 else None

    def _new_factors(self, base, rank, options):
        return (self._base_type(base.in_channels, rank, base.kernel_size, base.stride, base.padding, base.dilation,
                                padding_mode=base.padding_mode, **options),
                self._base_type(rank, base.out_channels, 1, **options))

    def _magnitude_shape(self, rows):
        return (1, rows) + (1,) * (self.base_layer.weight.dim() - 2)

    def forward(self, x: Tensor) -> Tensor:
        result = self.base_layer(x)
        if self.merged:
            return result
        if result.dim() != self.base_layer.weight.dim():
            raise self._shape_error(x, "give it a batch dimension")
        return self._adapted(x, result)

    def _delta_of_dropped(self, x, lora, gain):
        base = self.base_layer._conv_forward(x, self.base_layer.weight.to(x.dtype), None)
        return api.fused_dora_compose_autograd(lora, base, gain, self.scaling)


class DoRAConv1d(_DoRAConv):
    """DoRA over a torch.nn.Conv1d."""

    _base_type = nn.Conv1d


class DoRAConv2d(_DoRAConv):
    """DoRA over a torch.nn.Conv2d."""

    _base_type = nn.Conv2d


class DoRAConv3d(_DoRAConv):
    """DoRA over a torch.nn.Conv3d."""

    _base_type = nn.Conv3d
