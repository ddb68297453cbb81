"""Kernels made ready ahead of their first call."""

from typing import Optional

import torch

from dorajit import _native

_OPERATIONS = {"compose": 0, "compose_inner": 1, "backward": 2, "norm_assembly": 3}


def warmup(operation: str, *tensors: Optional[torch.Tensor], inplace: bool = False) -> None:
    """Compiles, tunes and loads what calls with such tensors will launch.

    For before a CUDA graph is captured, and before work that must not wait for a compiler. Elements
    are neither read nor written.

    Args:
        operation: "compose" or "compose_inner" with (lora, base, mag_norm_scale); "backward" with
            (d_out, inner, mag_norm_scale), None for inner without a gradient of mag_norm_scale;
            "norm_assembly" with (w_norm_sq, cross_term, ba_norm_sq).
        tensors: as the calls will pass them.
        inplace: the composition will write into lora.

    Raises:
        ValueError, TypeError: what the call itself would raise for these tensors.
        dorajit.Error: nothing could be made ready.
    """
    if operation not in _OPERATIONS:
        raise ValueError(f"warmup: argument `operation` is {operation!r}; give one of "
                         f"{', '.join(map(repr, _OPERATIONS))}")
    if len(tensors) != 3:
        raise TypeError(f"warmup: {operation} has 3 tensors, not {len(tensors)}")
    first, second, third = tensors
    if operation == "backward":
        wants_sum = second is not None
        outputs = (torch.empty_like(first), torch.empty_like(first),
                   torch.empty_like(third) if wants_sum else None)
    else:
        outputs = (first if inplace else torch.empty_like(first),)
        if operation == "compose_inner":
            outputs += (torch.empty_like(first),)
    _native.warmup(_OPERATIONS[operation], (*tensors, *outputs))


