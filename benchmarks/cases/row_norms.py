"""Row norms of W + s B A. dorajit: the kernel alone. call: dorajit.weight_norm, which chooses. factored: algorithm 1 of
arXiv:2603.22276 in PyTorch. dense: PyTorch's expression. triton: the best tile kernel of peers/weight_norm.py for the shape, with
one accumulator for the whole rank, and with sums of blocks, as the kernel's. Shapes are out x in.

Errors are the largest of any row against float64, in units of ||W_i|| + |s| || |B| |A| ||_i, for the operands and for
their magnitudes, whose products all have one sign, so that truncations add up.
"""

import torch

from dorajit.norms import norm
from dorajit.operations.table import operations

SHAPES = {"cuda": [(512, 4096), (1024, 4096), (4096, 1024), (4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192),
                   (28672, 8192)], "cpu": [(1024, 1024), (2048, 2048), (4096, 4096)]}
RANKS = {"cuda": [4, 16, 64, 256, 384, 768], "cpu": [16, 64, 384]}
# Types of the weight and the factors, and whether the columns of the weight are contiguous.
TYPES = {"bf16": (torch.bfloat16, torch.bfloat16, False), "bf16_f32factors": (torch.bfloat16, torch.float32, False),
         "f32": (torch.float32, torch.float32, False), "bf16_transposed": (torch.bfloat16, torch.bfloat16, True)}
SCALE = 0.7


def operands(shape, rank, types, device):
    rows, columns = shape
    of_weight, of_factors, is_transposed = types
    weight = torch.randn(rows, columns, device=device).mul_(0.02).to(of_weight)
    a = torch.randn(rank, columns, device=device).mul_(0.02).to(of_factors)
    b = torch.randn(rows, rank, device=device).mul_(0.01).to(of_factors)
    return weight.T.contiguous().T if is_transposed else weight, a, b


def multiply_adds(shape, rank):
    return shape[0] * shape[1] * rank


def dense(weight, a, b):
    return torch.linalg.vector_norm(torch.addmm(weight, b.to(weight.dtype), a.to(weight.dtype), alpha=SCALE), dim=1,
                                    dtype=torch.float32)


def factored(weight, a, b):
    wide_b, gram = b.float(), a.float() @ a.float().T
    cross = (weight.to(a.dtype) @ a.T).float().mul_(wide_b).sum(1)
    square = torch.linalg.vector_norm(weight, dim=1, dtype=torch.float32).square_()
    return (square + 2 * SCALE * cross + SCALE ** 2 * (wide_b @ gram).mul_(wide_b).sum(1)).clamp_min_(0).sqrt_()


def contenders(given):
    device = given[0].device.type
    found = {"call": lambda *of: norm.weight_norm(*of, SCALE),
             "factored": factored, "dense": dense}
    if not given[0].is_contiguous():
        return found
    out = torch.empty(given[0].shape[0], device=device)

    def dorajit(*of):
        operations["weight_norm"].launch(*of, None, out, None, None, None, SCALE)
        return out
    return {"dorajit": dorajit, **found, **(triton(given, out) if device == "cuda" else {})}


def triton(given, out):
    """The fastest launches of Triton's kernel for these operands."""
    from peers import weight_norm as peer
    if given[1].dtype != torch.bfloat16:
        return {}

    def caller(way, in_blocks):
        def run(*of):
            peer.weight_norm(way, *of, SCALE, out, in_blocks)
            return out
        run(*given)
        return run
    found = {}
    for name, in_blocks in (("triton", False), ("triton_in_blocks", True)):
        runs = [caller(way, in_blocks) for way in peer.ways(*given)]
        found[name] = min(runs, key=lambda run: peer.tuning.benchmark(lambda: run(*given), (0.5,)))
    return found


def errors(given, calls):
    weight, a, b = given
    of_one_sign = weight, a.abs(), b.abs()
    return {field: {name: largest_error(call(*of), *of) for name, call in calls.items()}
            for field, of in (("error", given), ("error_of_one_sign", of_one_sign))}


def largest_error(norms, weight, a, b):
    worst = 0.0
    for rows in torch.arange(weight.shape[0], device=weight.device).split(2048):
        wide = weight[rows].double()
        exact = (wide + SCALE * (b[rows].double() @ a.double())).norm(dim=1)
        unit = wide.norm(dim=1) + SCALE * (b[rows].double().abs() @ a.double().abs()).norm(dim=1)
        worst = max(worst, ((norms[rows].double() - exact).abs() / unit).max().item())
    return worst
