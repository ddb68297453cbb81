"""backward with the gradient of the gain; the contenders are those of compose.py."""

import torch

from cases import compose
from cases.compose import RANKS, SCALE, SHAPES, TYPES, multiply_adds, relative_error
from dorajit.operations.table import operations

__all__ = ["RANKS", "SHAPES", "TYPES", "contenders", "errors", "multiply_adds", "operands"]


def operands(shape, rank, types, device):
    d_out, inner, gain, d_lora = compose.operands(shape, rank, types, device)
    return d_out, inner, gain, d_lora, torch.zeros_like(d_lora), torch.zeros_like(gain)


def dorajit(*given):
    return operations["backward"].launch(*given, SCALE)


def unfused(d_out, inner, gain, *_):
    return gain * SCALE * d_out, (gain - 1) * d_out, (inner * d_out).sum(0)


def contenders(given):
    product = torch.zeros_like(given[0])

    def passes(d_out, inner, gain, d_lora, d_base, _):
        torch.mul(gain * SCALE, d_out, out=d_lora)
        torch.mul(gain - 1, d_out, out=d_base)
        torch.mul(inner, d_out, out=product)
        return d_lora, d_base, product.sum(0)
    return {"dorajit": dorajit, "unfused": unfused, "passes": passes,
            "add": lambda d_out, inner, _, d_lora, *__: torch.add(d_out, inner, out=d_lora)}


def errors(given, calls):
    """The largest of the three results'."""
    expected = unfused(*(one.double() for one in given[:3]))
    return {"error": {name: max(map(relative_error, call(*given), expected)) for name, call in calls.items()
                      if name != "add"}}
