"""Layers with a DoRA adapter, for use without PEFT; docs/layers.md."""

from dorajit.nn.conv import DoRAConv1d, DoRAConv2d, DoRAConv3d
from dorajit.nn.embedding import DoRAEmbedding
from dorajit.nn.linear import DoRALinear

__all__ = ["DoRAConv1d", "DoRAConv2d", "DoRAConv3d", "DoRAEmbedding", "DoRALinear"]
