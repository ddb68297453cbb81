"""Kernels made ready ahead of their first call."""

from typing import Optional

import torch

from dorajit import _native, checks, dispatch, errors, expression, run
from dorajit.operation import operations


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
    if not isinstance(operation, str) or operation not in operations:
        raise ValueError(f"warmup: argument `operation` is {operation!r}; give one of "
                         f"{', '.join(map(repr, operations))}")
    if types is not None and not (isinstance(types, (tuple, list)) and len(types) == 2
                                  and all(isinstance(one, torch.dtype) for one in types)):
        raise TypeError(f"warmup: argument `types` is {types!r}; give two element types, of lora and of "
                        "the base result")
    described = operations[operation]
    most = len(described.inputs)
    least = most - sum(not one.is_required for one in described.inputs) * described.is_composition
    if not least <= len(tensors) <= most:
        counts = str(most) if least == most else f"{least} to {most}"
        raise TypeError(f"warmup: {operation} has {counts} tensors, not {len(tensors)}")
    if not isinstance(wanted, (tuple, list)) or len(wanted) != 3:
        raise TypeError(f"warmup: argument `wanted` is {wanted!r}; give three flags, for lora, base and "
                        "the magnitude")
    inputs = (*tensors, *(None,) * (most - len(tensors)))
    if described.makes_gradients and inputs[1] is None and wanted[2]:
        raise TypeError("warmup: argument `inner` is None, from which the gradient of mag_norm_scale is "
                        "summed")
    if described.makes_gradients and not wanted[2]:
        inputs = (inputs[0], None, *inputs[2:])
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
        types = (*(types or (inputs[0].dtype,) * 2), inputs[2].dtype)
        return [tuple(dtype if want else None for dtype, want in zip(types, wanted))]
    dtype = expression.result_type(operation.name, *inputs)
    first, *rest = operation.outputs
    made = [inputs[0] if inplace and first.name == "out" else dtype]
    every = tuple(made + [dtype] * len(rest))
    required = tuple(made + [dtype if one.is_required else None for one in rest])
    return [required] if required == every else [required, every]
