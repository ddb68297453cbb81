"""The composition with a fused low-rank product, gain f32, no bias. dorajit: the kernel. pair: the two launches that it
replaces, the product by PyTorch and compose_residual. addmm: the same step of LoRA. copy: the result's bytes. Shapes are
tokens x out.

The error is the largest of any element against float64, without the rounding of the output, in units of
|s g| (|low| |lora_B|^T).
"""

import torch
import torch.nn.functional as F

from dorajit.operations import compositions
from dorajit.operations.table import operations

SHAPES = {"cuda": [(4096, 4096), (4096, 14336), (4096, 12288), (4096, 1024), (1024, 4096), (64, 512), (1, 4096)],
          "cpu": [(512, 1024), (1, 4096)]}
RANKS = {"cuda": [4, 16, 64, 128, 384, 768, 1024], "cpu": [16, 64]}
TYPES = {"bf16": torch.bfloat16}
SCALE = 0.7


def operands(shape, rank, dtype, device):
    tokens, out = shape
    low = torch.randn(tokens, rank, device=device).to(dtype)
    b = torch.randn(out, rank, device=device).mul_(0.02).to(dtype)
    result = torch.randn(tokens, out, device=device).to(dtype)
    gain = torch.randn(out, device=device).mul_(0.0015).add_(1)
    return low, b, result, gain, torch.empty_like(result)


def multiply_adds(shape, rank):
    return shape[0] * shape[1] * rank


def dorajit(low, b, result, gain, out):
    operations["compose_low_rank"].launch(low, b, result, gain, None, out, None, SCALE)


def pair(low, b, result, gain, _):
    compositions.compose_residual(F.linear(low, b), result, gain, None, SCALE, False, inplace=True)


def addmm(low, b, result, _, out):
    torch.addmm(result, low, b.T, alpha=SCALE, out=out)


def copy(_low, _b, result, _gain, out):
    torch.neg(result, out=out)


def contenders(_):
    return {"dorajit": dorajit, "pair": pair, "addmm": addmm, "copy": copy}


def errors(given, calls):
    if "dorajit" not in calls:
        return {}
    low, b, result, gain, out = given
    dorajit(*given)
    worst = 0.0
    for rows in torch.arange(low.shape[0], device=low.device).split(512):
        of, wide = low[rows].double(), result[rows].double()
        exact = wide + ((gain.double() - 1) * wide + gain.double() * (SCALE * (of @ b.double().T)))
        unit = SCALE * gain.double().abs() * (of.abs() @ b.double().abs().T)
        beyond = (out[rows].double() - exact).abs() - exact.abs() * 2.0 ** -8
        worst = max(worst, (beyond / unit).max().item())
    return {"error": worst}
