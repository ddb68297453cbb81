"""The composition of a layer's base result with its low-rank product, by the kernel compose_low_rank or by two
launches.

The kernel keeps S B^T in registers. This saves writing and reading a matrix of the output's size, a rounding and a
launch.
"""

import functools

import torch
import torch.nn.functional as F

from dorajit.operations import compositions, expression, recording, run
from dorajit.control import state
from dorajit.operations.gain import HALVES
from dorajit.operations.table import operations

_compose_low_rank = operations["compose_low_rank"]
# The cases in which the kernel was faster than the product by cuBLAS and compose_residual (docs/performance.md):
# measured with mma.sync on an H100, and with wgmma, which needs rows of whole vectors on sm_90, on an H200. Other
# supported architectures are assumed to be similar. The rule is fixed instead of measured on each machine, because the
# two implementations round differently.
_LEAST_CAPABILITY = (8, 0)
_WGMMA_CAPABILITY = (9, 0)
_MOST_RANK_BY_WGMMA = 1024
_MOST_RANK = 384
_VECTOR = 8  # elements of 16 bytes


def compose_over(low, lora_B, result, gain, bias, scale, keeps_inner):
    """compositions.compose_residual in place, with lora = low @ lora_B^T: (output in result's memory, inner or None).

    Args:
        low: [..., rank].
        lora_B: [out, rank], of low's element type.
        result: [..., out]; the caller holds the only reference.
        gain, bias: [out]; the bias may be None.
        scale: a float.
        keeps_inner: whether inner is returned.
    """
    if state.enabled and serves(lora_B):
        dtype = expression.sum_type(low, result) if keeps_inner else None
        made = run.launch(_compose_low_rank, (low, lora_B, result, gain, bias), (result, dtype), scale)
        if made is not None:
            return made
    return compositions.compose_residual(F.linear(low, lora_B), result, gain, bias, scale, keeps_inner, inplace=True)


def serves(lora_B):
    """Whether the kernel is used for lora_B, [out, rank], and a factor of its element type."""
    return recording.is_cuda(lora_B) and _serves(recording.target_of(lora_B).capability, lora_B.dtype, *lora_B.shape)


@functools.lru_cache(maxsize=256)
def _serves(capability, dtype, out, rank):
    has_wgmma = capability == _WGMMA_CAPABILITY and out % _VECTOR == 0 and rank % _VECTOR == 0
    return (dtype in HALVES and capability >= _LEAST_CAPABILITY
            and rank <= (_MOST_RANK_BY_WGMMA if has_wgmma else _MOST_RANK))
