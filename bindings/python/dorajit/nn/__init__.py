"""Layers with a DoRA adapter, for use without PEFT; docs/layers.md."""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dorajit.layers import dropout, linear, modules
from dorajit.nn import layer
from dorajit.norms import precision
from dorajit.operations import api

__all__ = ["DoRAConv1d", "DoRAConv2d", "DoRAConv3d", "DoRAEmbedding", "DoRALinear"]


class DoRALinear(layer.DoRALayer):
    """base_layer(x) + delta, delta = (g - 1) * (base without bias) + g * s * B A x.

    With active dropout, delta uses the low-rank result and the base result of the dropped-out input, as in PEFT.
    """

    _base_type = nn.Linear

    in_features, out_features = map(layer.of_base, ("in_features", "out_features"))

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


class DoRAEmbedding(layer.DoRALayer):
    """base_layer(x) + (g - 1) * base + g * s * A[:, x]^T B^T, with one gain per embedding dimension.

    The parameters are those of PEFT: lora_embedding_A [rank, num_embeddings] and lora_embedding_B [embedding_dim, rank].
    """

    _base_type = nn.Embedding
    _adapter_names = "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector"

    num_embeddings, embedding_dim, padding_idx = map(layer.of_base, ("num_embeddings", "embedding_dim", "padding_idx"))

    def __init__(self, base_layer: nn.Embedding, rank: int, alpha: float = 1.0, *,
                 use_rslora: bool = False, dtype: Optional[torch.dtype] = None):
        super().__init__(base_layer, rank, alpha, use_rslora=use_rslora, dtype=dtype)

    def _unfit(self, base_layer):
        return ("a max_norm, which changes the frozen weight in forward passes; pass an embedding without max_norm"
                if base_layer.max_norm is not None else None)

    def _add_factors(self, base, rank, like):
        self.lora_embedding_A = nn.Parameter(torch.zeros(rank, base.num_embeddings, **like))
        self.lora_embedding_B = nn.Parameter(torch.randn(base.embedding_dim, rank, **like))

    @classmethod
    def from_embedding(cls, embedding: nn.Embedding, rank: int, alpha: float = 1.0, **options) -> "DoRAEmbedding":
        """The layer with an adapter; `options` as for the constructor."""
        return cls(embedding, rank, alpha, **options)

    def _factors(self):
        return self.base_layer.weight.T, self.lora_embedding_A, self.lora_embedding_B

    def _to_weight(self, rows):
        return rows.T

    def forward(self, x: Tensor) -> Tensor:
        base = self.base_layer
        result = base(x)
        if self.merged:
            return result
        found = F.embedding(x, self.lora_embedding_A.T, base.padding_idx, scale_grad_by_freq=base.scale_grad_by_freq)
        with precision.of_adapter(result):
            lora, factor = found @ self.lora_embedding_B.T, self.gain()
        return api.fused_dora_compose_residual(lora, result, factor, self.scaling).to(result.dtype)
