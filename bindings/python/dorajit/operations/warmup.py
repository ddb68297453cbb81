"""Kernels made ready ahead of their first call."""

from collections.abc import Sequence
from typing import Optional

import torch

from dorajit import _native, checks, errors
from dorajit.operations import dispatch, expression, run
from dorajit.operations.table import operations


def warmup(operation: str, *tensors: Optional[torch.Tensor], inplace: bool = False,
           wanted: Sequence[bool] = (), types: Optional[Sequence[torch.dtype]] = None) -> None:
    """Compiles, tunes and loads what calls with such tensors will launch.

    For before a CUDA graph is captured, and before work that must not wait for a compiler. Elements
    are neither read nor written.

    Args:
        operation: any of the library's, with its inputs; those that may be left out come last or are None.
            "compose" or "compose_inner" with (lora, base, gain); "backward" with
            (d_out, inner, gain); "norm_assembly" with (w_norm_sq, cross, ba_norm_sq).
            Training with a trained magnitude uses the second and the third, with a frozen one the
            first and the third. Of fused_dora_compose_residual: "compose_residual" with (lora, result,
            gain) and the bias if there is one, for training and inference both;
            "residual_backward" with (d_out, inner, gain). A layer is made ready by a step
            of one of its shapes and types.
        tensors: as the calls will pass them.
        inplace: the composition will write into lora.
        wanted: which gradients a backward pass will be asked for, as of lora, base and the magnitude; all
            if it is empty. Without that of the magnitude, inner may be None.
        types: of lora and the base result in the forward pass, which their gradients will have; None: that
            of d_out.

    Raises:
        ValueError, TypeError: what the call itself would raise for these tensors.
        dorajit.UnsupportedError: such calls run in PyTorch.
        dorajit.Error: nothing could be made ready.
    """
    if not isinstance(operation, str) or operation not in operations:
        raise ValueError(f"warmup: argument `operation` is {operation!r}; give one of "
                         f"{', '.join(map(repr, operations))}")
    described = operations[operation]
    typed = [one.name for one in described.outputs if not one.is_sum]
    if types is not None and not (isinstance(types, (tuple, list)) and len(types) == len(typed)
                                  and all(isinstance(one, torch.dtype) for one in types)):
        raise TypeError(f"warmup: argument `types` is {types!r}; give one element type for each of "
                        f"{', '.join(typed)}")
    most = len(described.inputs)
    least = most - sum(not one.is_required for one in described.inputs) * described.is_composition
    if not least <= len(tensors) <= most:
        counts = str(most) if least == most else f"{least} to {most}"
        raise TypeError(f"warmup: {operation} has {counts} tensors, not {len(tensors)}")
    named = [one.name for one in described.outputs]
    if not isinstance(wanted, (tuple, list)) or (described.makes_gradients
                                                 and len(wanted) not in (0, len(named))):
        raise TypeError(f"warmup: argument `wanted` is {wanted!r}; give one flag for each of "
                        f"{', '.join(named)}")
    wanted = wanted or (True,) * len(named)
    inputs = (*tensors, *(None,) * (most - len(tensors)))
    sums = [one.name for one, want in zip(described.outputs, wanted) if one.is_sum and want]
    missing = [one.name for one, tensor in zip(described.inputs, inputs) if one.is_for_sum and tensor is None]
    if sums and missing:
        raise TypeError(f"warmup: argument `{missing[0]}` is None, from which {sums[0]} is summed")
    inputs = described.needed(inputs, bool(sums))
    checks.operands("warmup", described, inputs)
    for outputs in _outputs(described, inputs, inplace, wanted, types):
        answer = dispatch.plan(described, inputs, run.allocated(described, inputs, outputs))
        if answer.strides_only and described.makes_gradients:
            inputs = tuple(one if one is None else one.contiguous() for one in inputs)
            answer = dispatch.plan(described, inputs, run.allocated(described, inputs, outputs))
        if answer.reason is not None:
            raise errors.UnsupportedError(f"warmup: {operation} runs in PyTorch: {answer.reason}",
                                          errors.UNSUPPORTED)
        _native.warmup(operation, answer.operands)


def _outputs(operation, inputs, inplace, wanted, types):
    """The outputs of each call to come, as for run.launch: with and without those that may be left out."""
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
