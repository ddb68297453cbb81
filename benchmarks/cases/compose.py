"""compose. dorajit: the kernel. unfused: the expression as users write it, which allocates each result. passes: the same
operations into existing buffers. add: one pass over three matrices, the lower bound. The shapes for a CPU exceed its
caches, so that memory traffic determines the time. kernels.py has the contenders for a GPU.

Errors are those of the whole result against float64.
"""

import torch

from dorajit.operations.table import operations

SHAPES = {"cuda": [(4096, 4096), (8192, 8192)], "cpu": [(4096, 4096), (8192, 4096), (2048, 11008)]}
RANKS = {"cuda": [None], "cpu": [None]}
# Types of the activations and the gain.
TYPES = {"f32": (torch.float32, torch.float32), "bf16": (torch.bfloat16, torch.bfloat16),
         "bf16_f32gain": (torch.bfloat16, torch.float32)}
SCALE = 0.5


def operands(shape, _, types, device):
    lora, base = (torch.randn(shape, device=device).to(types[0]) for _ in range(2))
    gain = (1 + torch.randn(shape[1], device=device) / 8).to(types[1])
    # Written once, so that no measurement includes page faults.
    return lora, base, gain, torch.zeros_like(lora)


def multiply_adds(_shape, _rank):
    return 0


def dorajit(lora, base, gain, out):
    return operations["compose"].launch(lora, base, gain, out, SCALE)


def unfused(lora, base, gain, _=None):
    return (gain - 1) * base + gain * (SCALE * lora)


def contenders(given):
    wide = torch.promote_types(given[0].dtype, given[2].dtype)
    of_base, of_lora = (torch.zeros_like(given[0], dtype=wide) for _ in range(2))

    def passes(lora, base, gain, out):
        torch.mul(gain - 1, base, out=of_base)
        torch.mul(lora, SCALE, out=of_lora)
        torch.mul(gain, of_lora, out=of_lora)
        return torch.add(of_base, of_lora, out=out)
    return {"dorajit": dorajit, "unfused": unfused, "passes": passes,
            "add": lambda lora, base, _, out: torch.add(lora, base, out=out)}


def relative_error(found, expected):
    return (torch.linalg.norm(found.double() - expected) / torch.linalg.norm(expected)).item()


def errors(given, calls):
    expected = unfused(*(one.double() for one in given[:3]))
    return {"error": {name: relative_error(call(*given), expected) for name, call in calls.items() if name != "add"}}
