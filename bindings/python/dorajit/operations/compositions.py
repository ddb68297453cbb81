"""The compositions without autograd: by a kernel, or in PyTorch if no kernel takes the tensors.

Arguments are those of the public functions (dorajit.operations.api); outputs that are not given are allocated as
in dorajit.operations.run.
"""

from dorajit.operations import dispatch, expression, run
from dorajit.operations.table import operations

_compose, _compose_inner = operations["compose"], operations["compose_inner"]
_compose_residual = operations["compose_residual"]


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
    inner = scale * lora + base in that type, or None without `keeps_inner`. The bias may be None.

    Args:
        inplace: for a caller that holds the only references to lora and result: the output is written into result and
            has its type; inner is written into lora if lora has the wider type.
    """
    if bias is not None and bias.dim() != gain.dim():
        bias = dispatch.over_channels(bias, gain)
    dtype = lora.dtype if lora.dtype is result.dtype else expression.sum_type(lora, result)
    into = (result, lora if lora.dtype is dtype else dtype) if inplace else (dtype, dtype)
    made = run.launch(_compose_residual, (lora, result, gain, bias), into if keeps_inner else (into[0], None), scale)
    if made is not None:
        return made
    out, inner = expression.compose_residual(lora, result, gain, bias, scale, dtype)
    return out.to(result.dtype) if inplace else out, inner if keeps_inner else None
