"""The problems that kernels.py measures."""

import dataclasses

import torch

# Rows x columns of the activations: the shapes of arXiv:2603.22276's microbenchmarks.
SHAPES = (
    (1, 512), (512, 512), (2048, 512), (8192, 512), (2048, 1024), (2048, 2048), (2048, 3072),
    (1, 4096), (512, 4096), (2048, 4096), (4096, 4096), (2048, 6144), (2048, 8192), (2048, 12288),
    (2048, 16384), (2048, 28672), (8192, 8192), (16384, 8192), (8192, 28672), (32768, 8192),
)

# Element types of the activations and of the gain.
TYPE_MIXES = {
    "bf16": (torch.bfloat16, torch.bfloat16),
    "f16": (torch.float16, torch.float16),
    "f32": (torch.float32, torch.float32),
    "bf16_f32gain": (torch.bfloat16, torch.float32),
}


@dataclasses.dataclass(frozen=True)
class Case:
    rows: int
    cols: int
    types: str

    @property
    def dtype(self):
        return TYPE_MIXES[self.types][0]

    @property
    def gain_dtype(self):
        return TYPE_MIXES[self.types][1]

    @property
    def matrix_bytes(self):
        return self.rows * self.cols * self.dtype.itemsize

    @property
    def gain_bytes(self):
        return self.cols * self.gain_dtype.itemsize

    def activations(self):
        return torch.randn(self.rows, self.cols, device="cuda", dtype=self.dtype)

    def gain(self):
        """A gain that varies more than a trained one: bf16 would round most trained gains to 1, and d_base would be
        zeros, which memory transfers faster than other data."""
        return (1 + 0.1 * torch.randn(self.cols, device="cuda")).to(self.gain_dtype)

    def unwritten(self):
        return torch.empty(self.rows, self.cols, device="cuda", dtype=self.dtype)
