"""Compiles, tunes and loads kernels ahead of their first call."""

from collections.abc import Sequence
from typing import Optional

import torch

from dorajit import _native, checks, errors
from dorajit.operations import expression, run
from dorajit.operations.table import operations


def warmup(operation: str, *tensors: Optional[torch.Tensor], inplace: bool = False,
           wanted: Sequence[bool] = (), types: Optional[Sequence[torch.dtype]] = None) -> None:
    """Compiles, tunes and loads the kernels that calls with such tensors will launch.

    Use it before a CUDA graph is captured, and before work that must not wait for a compiler. Elements
    are neither read nor written.

    Args:
        operation: the name of an operation:
            "compose" or "compose_inner" with (lora, base, gain); "backward" with
            (d_out, inner, gain); "norm_assembly" with (w_norm_sq, cross, ba_norm_sq).
            fused_dora_compose_autograd with a trained magnitude uses "compose_inner" and "backward", with a
            frozen one "compose" and "backward". fused_dora_compose_residual uses "compose_residual" with
            (lora, result, gain) and the bias if there is one, in training and inference, and
            "residual_backward" with (d_out, inner, gain); layers use "magnitude_backward" with
            (d_out, inner, gain, divisor). To warm up a layer, run one step
            with its shapes and types instead.
        tensors: the inputs of the operation, as the calls will pass them. Optional ones are last, or None.
        inplace: whether the composition will write into lora.
        wanted: which gradients a backward pass will compute, for instance of lora, base and the magnitude;
            all if it is empty. Without that of the magnitude, inner may be None.
        types: the element types of lora and the base result in the forward pass, which their gradients will
            have; None: that of d_out.

    Raises:
        ValueError, TypeError: the errors of the call itself for these tensors.
        dorajit.UnsupportedError: such calls run in PyTorch.
        dorajit.Error: a kernel could not be compiled or loaded.
    """
    if not isinstance(operation, str) or operation not in operations:
        raise ValueError(f"warmup: argument `operation` is {operation!r}; give one of "
                         f"{', '.join(map(repr, operations))}")
    described = operations[operation]
    most = len(described.inputs)
    least = most - sum(not one.is_required for one in described.inputs) * described.is_composition
    if not least <= len(tensors) <= most:
        counts = str(most) if least == most else f"{least} to {most}"
        raise TypeError(f"warmup: {operation} has {counts} tensors, not {len(tensors)}")
    named = [one.name for one in described.outputs]
    typed = [one.name for one in described.outputs if not one.is_sum]
    types = () if types is None else types
    for argument, value, names in ("wanted", wanted, named), ("types", types, typed):
        if not isinstance(value, (tuple, list)) or (described.makes_gradients and len(value) not in (0, len(names))):
            raise TypeError(f"warmup: argument `{argument}` is {value!r}; give one for each of {', '.join(names)}")
    wanted = wanted or (True,) * len(named)
    inputs = (*tensors, *(None,) * (most - len(tensors)))
    sums = [one.name for one, want in zip(described.outputs, wanted) if one.is_sum and want]
    missing = [one.name for one, tensor in zip(described.inputs, inputs) if one.is_for_sum and tensor is None]
    if sums and missing:
        raise TypeError(f"warmup: argument `{missing[0]}` is None, but {sums[0]} is summed from it; pass it")
    inputs = described.needed(inputs, bool(sums))
    checks.operands("warmup", described, inputs)
    for outputs in _outputs(described, inputs, inplace, wanted, types):
        answer, _ = run.planned(described, inputs, outputs)
        if answer.reason is not None:
            raise errors.UnsupportedError(f"warmup: {operation} runs in PyTorch: {answer.reason}",
                                          errors.UNSUPPORTED)
        _native.warmup(operation, answer.operands)


def _outputs(operation, inputs, inplace, wanted, types):
    """The outputs of the expected calls, as for run.launch: with and without the optional ones."""
    if operation.makes_gradients:
        given = iter(types or (inputs[0].dtype,) * len(operation.outputs))
        types = [operation.model_of(one, inputs).dtype if one.is_sum else next(given)
                 for one in operation.outputs]
        return [tuple(dtype if want else None for dtype, want in zip(types, wanted))]
    dtype = expression.output_types(operation, inputs)[0]
    first, *rest = operation.outputs
    made = [inputs[0] if inplace and first.name == "out" else dtype]
    every = tuple(made + [dtype] * len(rest))
    required = tuple(made + [dtype if one.is_required else None for one in rest])
    return [required] if required == every else [required, every]
