"""DoRA over an embedding."""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dorajit.nn import layer
from dorajit.norms import precision
from dorajit.operations import api


class DoRAEmbedding(layer.DoRALayer):
    """base_layer(x) + (g - 1) * base + g * s * A[:, x]^T B^T, with one gain per embedding dimension.

    The parameters are those of PEFT: lora_embedding_A [rank, num_embeddings] and lora_embedding_B
    [embedding_dim, rank].
    """

    _base_type = nn.Embedding

    num_embeddings = layer.of_base("num_embeddings")
    embedding_dim = layer.of_base("embedding_dim")
    padding_idx = layer.of_base("padding_idx")

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
    def from_embedding(cls, embedding: nn.Embedding, rank: int, alpha: float = 1.0,
                       **options) -> "DoRAEmbedding":
        """The layer with an adapter; `options` as for the constructor."""
        return cls(embedding, rank, alpha, **options)

    def _factors(self):
        return self.base_layer.weight.T, self.lora_embedding_A, self.lora_embedding_B

    def _to_weight(self, rows):
        return rows.T

    def _adapter_names(self):
        return "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector"

    def forward(self, x: Tensor) -> Tensor:
        base = self.base_layer
        result = base(x)
        if self.merged:
            return result
        found = F.embedding(x, self.lora_embedding_A.T, base.padding_idx,
                            scale_grad_by_freq=base.scale_grad_by_freq)
        with precision.of_adapter(result):
            lora, factor = found @ self.lora_embedding_B.T, self.gain()
        return api.fused_dora_compose_residual(lora, result, factor, self.scaling).to(result.dtype)
