"""The composition of a layer's two results with the low-rank product inside it: the kernel compose_low_rank, which
calls it serves, and what runs the others.

The kernel keeps S B^T in the registers that summed it, and so saves the writing and the reading of a matrix of the
output's size, a rounding and a launch.
"""

import functools

import torch
import torch.nn.functional as F

from dorajit import errors
from dorajit.operations import compositions, expression, run
from dorajit.control import state
from dorajit.operations.table import operations

_compose_low_rank = operations["compose_low_rank"]
_launch = _compose_low_rank.launch
_HALVES = frozenset({torch.float16, torch.bfloat16})
# Where the kernel was faster than the product by cuBLAS and compose_residual (docs/performance.md): by mma.sync on an
# H100, by wgmma, which multiplies rows of whole vectors on sm_90, on an H200. Others of its architectures are taken to
# be alike. A rule, and no measurement on the machine at hand, since the two round differently.
_LEAST_CAPABILITY = (8, 0)
_WGMMA_CAPABILITY = (9, 0)
_MOST_RANK_BY_WGMMA = 1024
_MOST_RANK = 384
_VECTOR = 8  # elements of 16 bytes


def compose_over(low, lora_B, result, gain, bias, scale, keeps_inner):
    """compositions.compose_residual_over of lora = low @ lora_B^T: the output in result's memory; inner or None.

    Args:
        low: [..., rank].
        lora_B: [out, rank], of low's element type.
        result: [..., out], which the caller alone has.
        gain, bias: [out]; the bias may be None.
    """
    if low.is_cuda and state.enabled and serves(low.device, low.dtype, *lora_B.shape):
        dtype = low.dtype
        if result.dtype is not dtype:
            dtype = expression.sum_type(low, result)
        inputs, outputs = (low, lora_B, result, gain, bias), (result, dtype if keeps_inner else None)
        try:
            return _launch(*inputs, *outputs, scale)
        except errors.Error as error:
            made = run.launch_over_views(error, _compose_low_rank, inputs, outputs, (scale,))
        if made is not None:
            return made
    return compositions.compose_residual_over(F.linear(low, lora_B), result, gain, bias, scale, keeps_inner)


@functools.lru_cache(maxsize=256)
def serves(device, dtype, out, rank):
    """Whether the kernel does on a CUDA device, for factors of that element type and lora_B [out, rank]."""
    capability = torch.cuda.get_device_capability(device)
    has_wgmma = capability == _WGMMA_CAPABILITY and out % _VECTOR == 0 and rank % _VECTOR == 0
    return (dtype in _HALVES and capability >= _LEAST_CAPABILITY
            and rank <= (_MOST_RANK_BY_WGMMA if has_wgmma else _MOST_RANK))
