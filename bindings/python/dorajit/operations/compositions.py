"""The compositions without autograd: by a kernel, or in PyTorch if no kernel takes the tensors. That of a base result with
a low-rank product may keep the product in registers, which saves writing and reading a matrix of the output's size, a
rounding and a launch.

Arguments are those of the public functions (dorajit.operations.api); outputs that are not given are allocated as
in dorajit.operations.run.
"""

import torch.nn.functional as F

from dorajit.control import state
from dorajit.operations import expression, recording, run
from dorajit.operations.gain import HALVES
from dorajit.operations.table import operations

_compose, _compose_inner = operations["compose"], operations["compose_inner"]
_compose_residual, _compose_low_rank = operations["compose_residual"], operations["compose_low_rank"]
# The cases in which the kernel was faster than the product by cuBLAS and compose_residual (docs/performance.md):
# measured with mma.sync on an H100, and with wgmma, which needs rows of whole vectors on sm_90, on an H200. Other
# supported architectures are assumed to be similar. The rule is fixed instead of measured on each machine, because the
# two implementations round differently.
_LEAST_CAPABILITY = (8, 0)
_WGMMA_CAPABILITY = (9, 0)
_MOST_RANK_BY_WGMMA = 1024
_MOST_RANK = 384
_VECTOR = 8  # elements of 16 bytes


def compose(lora, base, gain, scale, keeps_inner=False, out=None):
    """(result, inner): result = (gain - 1) * base + gain * (scale * lora) in a new tensor, or in `out`, which may be
    lora; inner = scale * lora + base in a new tensor of lora's type, or None without `keeps_inner`."""
    into = lora.dtype if out is None else out
    operation, outputs = (_compose_inner, (into, lora.dtype)) if keeps_inner else (_compose, (into,))
    made = run.launch(operation, (lora, base, gain), outputs, scale)
    if made is None:
        made = expression.formulas[operation.name].compute(lora, base, gain, scale)
        if out is not None:
            out.copy_(made[0] if keeps_inner else made)
            made = (out, made[1]) if keeps_inner else out
    return made if keeps_inner else (made, None)


def compose_residual(lora, result, gain, bias, scale, keeps_inner, inplace=False):
    """(out, inner): out = result + compose of base = result - bias, in a new tensor of the type of result + lora;
    inner = scale * lora + base in that type, or None without `keeps_inner`. The bias may be None. `inplace` is for a caller
    that holds the only references to lora and result: the output is written into result and has its type; inner is written
    into lora if lora has the wider type."""
    if bias is not None and bias.dim() != gain.dim():
        bias = expression.over_channels(bias, gain)
    dtype = lora.dtype if lora.dtype is result.dtype else expression.sum_type(lora, result)
    into = (result, lora if lora.dtype is dtype else dtype) if inplace else (dtype, dtype)
    made = run.launch(_compose_residual, (lora, result, gain, bias), into if keeps_inner else (into[0], None), scale)
    if made is not None:
        return made
    out, inner = expression.compose_residual(lora, result, gain, bias, scale, dtype)
    return out.to(result.dtype) if inplace else out, inner if keeps_inner else None


def compose_low_rank(low, lora_B, result, gain, bias, scale, keeps_inner):
    """compose_residual in place, with lora = low @ lora_B^T: (output in result's memory, inner or None). low is [..., rank],
    lora_B [out, rank] of its element type; gain and bias are [out]."""
    if state.enabled and serves_low_rank(lora_B):
        dtype = expression.sum_type(low, result) if keeps_inner else None
        made = run.launch(_compose_low_rank, (low, lora_B, result, gain, bias), (result, dtype), scale)
        if made is not None:
            return made
    return compose_residual(F.linear(low, lora_B), result, gain, bias, scale, keeps_inner, inplace=True)


def serves_low_rank(lora_B):
    """Whether the kernel compose_low_rank is used for lora_B, [out, rank], and a factor of its element type."""
    if not recording.is_cuda(lora_B) or lora_B.dtype not in HALVES:
        return False
    capability, (out, rank) = recording.target_of(lora_B).capability, lora_B.shape
    has_wgmma = capability == _WGMMA_CAPABILITY and out % _VECTOR == 0 and rank % _VECTOR == 0
    return capability >= _LEAST_CAPABILITY and rank <= (_MOST_RANK_BY_WGMMA if has_wgmma else _MOST_RANK)
