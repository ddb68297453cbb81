"""The norms of the rows of W + scale B A (arXiv:2603.22276), without the whole B A in memory.

One kernel multiplies, adds and sums tile by tile, without cancellation between terms (docs/numerics.md). Tensors
that it does not take, or for which it is slower, use products of PyTorch (dorajit.norms.matrix_norms has the rules).
Nothing is cached between calls.
"""

import math
from typing import Optional

import torch
from torch import Tensor
from torch.utils import flop_counter

from dorajit import checks, control
from dorajit.norms import dtensor_norm, matrix_norms, precision
from dorajit.norms.matrix_norms import matrices, norms, sum_type
from dorajit.operations import eligibility, gain, recording, torch_library
from dorajit.distributed import gather

# glibc returns larger blocks to the system, and each new block causes a page fault for every page: temporaries of
# 64 MB doubled the time of a norm.
_MOST_BYTES_ON_CPU = 16 << 20


def weight_norm(weight: Tensor, lora_A: Tensor, lora_B: Tensor, scale: float, *, chunk_mb: Optional[int] = None) -> Tensor:
    """The L2 norms of the rows of weight + scale * lora_B @ lora_A.

    Sums are float32 (float64 if an argument is float64), whatever the types of the arguments and the
    autocast and TF32 settings of the process. Temporaries stay under the budget (docs/layers.md has the exceptions). The
    result is a constant for autograd, as in the definition of DoRA.

    Args:
        weight: [out, in], with any strides; or the weight of a convolution, [out, in, ...].
        lora_A: [rank, in], or for a convolution [rank, in, ...].
        lora_B: [out, rank], or [out, rank, 1, ...].
        scale: a float. With 0, only the weight is read.
        chunk_mb: the budget in MB (2^20 bytes); None for get_dora_norm_threshold_mb(), 256 unless set. Copies of the
            factors, and one row, are used anyway.

    Any argument may be a DTensor (docs/sharding.md). The call is then collective: each rank
    sums its part of the weight, which is never gathered.

    Returns:
        [out], float32 or float64. The norm of a row with a NaN or an infinity is not finite. For a DTensor
        the result is a DTensor, sharded as the weight's rows.

    Raises:
        TypeError: an argument is not a tensor of real floating point numbers; scale is not a float.
        ValueError: shapes or devices do not match; chunk_mb is not a positive whole number; a
            parameter that FSDP or ZeRO-3 has sharded is not gathered.
    """
    operands = weight, lora_A, lora_B
    if eligibility.is_observed() and (eligibility.is_compiling() or not any(map(gather.is_dtensor, operands))):
        has_operator = control.state.enabled and eligibility.why_expression(*operands) is None
        run = torch.ops.dorajit.row_norms if has_operator else _expression
        return run(weight.detach(), lora_A.detach(), lora_B.detach(), scale, chunk_mb)
    made = matrix_norms.at_once(*operands, scale) if chunk_mb is None else None
    return made if made is not None else _computed(*operands, scale, chunk_mb)


def _computed(weight, lora_A, lora_B, scale, chunk_mb):
    scale = checks.scale("weight_norm", scale)
    budget = control.norm_bytes(chunk_mb)
    check(weight, lora_A, lora_B)
    if recording.target_of(weight).type == "cpu":
        budget = min(budget, _MOST_BYTES_ON_CPU)
    if any(map(gather.is_dtensor, (weight, lora_A, lora_B))):
        return dtensor_norm.weight_norm(weight, lora_A, lora_B, scale, budget)
    return norms(*matrices(weight, lora_A, lora_B), scale, budget, sum_type(weight, lora_A, lora_B))


def _expression(weight, lora_A, lora_B, scale, chunk_mb):
    """weight_norm in two of PyTorch's operations, which have no budget: for observers of single operations."""
    scale = checks.scale("weight_norm", scale)
    check(weight, lora_A, lora_B)
    dtype = sum_type(weight, lora_A, lora_B)
    weight, a, b = (one.to(dtype) for one in matrices(weight, lora_A, lora_B))
    # A compiler does not trace `full`; compiled products then have the process's setting of TF32.
    context = precision.without_autocast if eligibility.is_compiling() else precision.full
    with context(weight.device.type):
        return torch.linalg.vector_norm(torch.addmm(weight, b, a, alpha=scale), dim=1)


def divisor_and_gain(weight, lora_A, lora_B, magnitude, scale):
    """(divisor, gain) for plain tensors, in the magnitude's shape: gain.divisor of their weight_norm, and magnitude /
    divisor. Both are constants for autograd."""
    dims = weight.dim()
    if dims >= 2 and dims == lora_A.dim() == lora_B.dim():
        operands = (weight, lora_A, lora_B) if dims == 2 else matrices(weight, lora_A, lora_B)
        made = matrix_norms.divisor_and_gain(*operands, magnitude, scale)
        if made is not None:
            return made
    return gain.with_divisor(magnitude.detach(), _computed(weight, lora_A, lora_B, scale, None))


def factors_of_layer(weight, lora_A, lora_B):
    """The factors for the norm of a layer: as cast by autocast if that gives the weight's type, so that the norm is
    that of the matrix that x is multiplied by; otherwise unchanged."""
    if lora_A.dtype is weight.dtype:
        return lora_A, lora_B
    a = precision.as_autocast(lora_A.detach())
    if a.dtype is not weight.dtype:
        return lora_A, lora_B
    return a, precision.as_autocast(lora_B.detach())


def check(weight, lora_A, lora_B):
    """Raises the TypeError or ValueError of weight_norm for tensors that it does not take."""
    given = {"weight": weight, "lora_A": lora_A, "lora_B": lora_B}
    checks.tensors("weight_norm", **given)
    for name, tensor in given.items():
        gather.require("weight_norm", name, tensor)
        if tensor.dim() < 2:
            raise ValueError(f"weight_norm: argument `{name}` has shape {tuple(tensor.shape)}; pass a matrix or the weight "
                             "of a convolution")
    checks.same_device("weight_norm", **given)
    columns, rank = math.prod(weight.shape[1:]), lora_A.shape[0]
    if math.prod(lora_A.shape[1:]) != columns:
        raise ValueError(f"weight_norm: argument `lora_A` has shape {tuple(lora_A.shape)}, which does not match `weight` of "
                         f"{tuple(weight.shape)}; give it {columns} columns")
    if (lora_B.shape[0], math.prod(lora_B.shape[1:])) != (weight.shape[0], rank):
        raise ValueError(f"weight_norm: argument `lora_B` has shape {tuple(lora_B.shape)}, but `weight` has "
                         f"{weight.shape[0]} rows and `lora_A` a rank of {rank}; give it ({weight.shape[0]}, {rank})")


def _fake_operator(weight, lora_A, lora_B, scale, chunk_mb):
    check(weight, lora_A, lora_B)
    return weight.new_empty(weight.shape[:1], dtype=sum_type(weight, lora_A, lora_B))


# Nothing may be cached: compiled code runs this while PyTorch allocates from the pool of a CUDA graph, where every
# tensor that outlives a call must be an output of the graph.
_library = torch_library.Library("dorajit", "FRAGMENT")
_library.add(
    "row_norms", "row_norms(Tensor weight, Tensor lora_A, Tensor lora_B, float scale, int? chunk_mb) -> Tensor",
    _computed, _fake_operator)
flop_counter.register_flop_formula(torch.ops.dorajit.row_norms)(
    lambda weight, lora_A, *_, **__: 2 * math.prod(weight) * lora_A[0])
