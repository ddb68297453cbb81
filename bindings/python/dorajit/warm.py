"""Kernels made ready ahead of their first call."""

from typing import Optional

import torch

from dorajit import _native, checks, dispatch, errors, expression

_OPERATIONS = tuple(_native.call_counts())


def warmup(operation: str, *tensors: Optional[torch.Tensor], inplace: bool = False,
           wanted: tuple[bool, bool, bool] = (True, True, True),
           types: Optional[tuple[torch.dtype, torch.dtype]] = None) -> None:
    """Compiles, tunes and loads what calls with such tensors will launch.

    For before a CUDA graph is captured, and before work that must not wait for a compiler. Elements
    are neither read nor written.

    Args:
        operation: "compose" or "compose_inner" with (lora, base, mag_norm_scale); "backward" with
            (d_out, inner, mag_norm_scale); "norm_assembly" with (w_norm_sq, cross_term, ba_norm_sq).
            Training with a trained magnitude uses the second and the third, with a frozen one the
            first and the third. Of fused_dora_compose_residual, and so of layers: "compose_residual"
            with (lora, result, mag_norm_scale) and the bias if there is one, for training and
            inference both; "residual_backward" with (d_out, inner, mag_norm_scale).
        tensors: as the calls will pass them.
        inplace: the composition will write into lora.
        wanted: which gradients a backward pass will be asked for: of lora, base and the magnitude.
            Without the last, inner may be None.
        types: of lora and the base result in the forward pass, which their gradients will have; of d_out
            both if they are None.

    Raises:
        ValueError, TypeError: what the call itself would raise for these tensors.
        dorajit.UnsupportedError: such calls run in PyTorch.
        dorajit.Error: nothing could be made ready.
    """
    if not isinstance(operation, str) or operation not in _OPERATIONS:
        raise ValueError(f"warmup: argument `operation` is {operation!r}; give one of "
                         f"{', '.join(map(repr, _OPERATIONS))}")
    counts = (3, 4) if operation == "compose_residual" else (3,)
    if types is not None and not (isinstance(types, (tuple, list)) and len(types) == 2
                                  and all(isinstance(one, torch.dtype) for one in types)):
        raise TypeError(f"warmup: argument `types` is {types!r}; give two element types, of lora and of "
                        "the base result")
    if len(tensors) not in counts:
        raise TypeError(f"warmup: {operation} has {' or '.join(map(str, counts))} tensors, not "
                        f"{len(tensors)}")
    if not isinstance(wanted, (tuple, list)) or len(wanted) != 3:
        raise TypeError(f"warmup: argument `wanted` is {wanted!r}; give three flags, for lora, base and "
                        "the magnitude")
    if operation == "norm_assembly":
        calls = [_norm_assembly(*tensors)]
    elif operation == "compose_residual":
        calls = [_compose_residual(*tensors, keeps_inner=keeps_inner) for keeps_inner in (False, True)]
    elif operation in ("backward", "residual_backward"):
        calls = [_backward(*tensors, wanted, types)]
    else:
        calls = [_compose(operation, *tensors, inplace)]
    for answer, operands in calls:
        if answer.reason is not None:
            raise errors.UnsupportedError(f"warmup: {operation} runs in PyTorch: {answer.reason}",
                                          errors.UNSUPPORTED)
        _native.warmup(operation, operands)


# Each gives a dispatch.Plan, and the operands that go with it in the order of the kernel's.

def _norm_assembly(w_norm_sq, cross_term, ba_norm_sq):
    checks.norm_assembly("warmup", w_norm_sq, cross_term, ba_norm_sq)
    answer = dispatch.plan({"w_norm_sq": w_norm_sq, "cross_term": cross_term,
                            "ba_norm_sq": ba_norm_sq, "norm": torch.empty_like(w_norm_sq)})
    return answer, answer.matrices


def _compose(operation, lora, base, gain, inplace):
    checks.compose("warmup", lora, base, gain)
    matrices = {"lora": lora, "base": base, "out": lora if inplace else torch.empty_like(lora)}
    if operation == "compose_inner":
        matrices["inner"] = torch.empty_like(lora)
    answer = dispatch.plan(matrices, gain)
    return answer, (*answer.matrices[:2], answer.gain, *answer.matrices[2:])


def _compose_residual(lora, result, gain, bias=None, *, keeps_inner):
    checks.compose_residual("warmup", lora, result, gain, bias)
    out = torch.empty_like(lora, dtype=expression.sum_type(lora, result))
    matrices = {"lora": lora, "result": result, "out": out,
                "inner": torch.empty_like(out) if keeps_inner else None}
    answer = dispatch.plan(matrices, gain)
    biased = None
    if bias is not None and answer.reason is None:
        of_bias = dispatch.plan_bias(matrices, gain, bias)
        answer = answer._replace(reason=of_bias.reason)
        biased = of_bias.gain
    return answer, (*answer.matrices[:2], answer.gain, biased, *answer.matrices[2:])


def _backward(d_out, inner, gain, wanted, types):
    if inner is None and wanted[2]:
        raise TypeError("warmup: argument `inner` is None, from which the gradient of mag_norm_scale is "
                        "summed")
    inner = inner if wanted[2] else None
    checks.backward("warmup", d_out, inner, gain)
    types = types or (d_out.dtype, d_out.dtype)
    def matrices():
        return {"d_out": d_out, "inner": inner,
                "d_lora": torch.empty_like(d_out, dtype=types[0]) if wanted[0] else None,
                "d_base": torch.empty_like(d_out, dtype=types[1]) if wanted[1] else None}
    answer = dispatch.plan(matrices(), gain)
    if answer.strides_only:
        d_out = d_out.contiguous()
        inner = None if inner is None else inner.contiguous()
        answer = dispatch.plan(matrices(), gain)
    d_gain = torch.empty_like(answer.gain) if wanted[2] and answer.reason is None else None
    return answer, (*answer.matrices[:2], answer.gain, *answer.matrices[2:], d_gain)
