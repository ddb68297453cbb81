"""The gain g = magnitude / norm of DoRA."""

import torch

_HALVES = frozenset({torch.float16, torch.bfloat16})


def eps(dtype):
    """The least norm that a magnitude of this type is divided by."""
    return 1e-6 if dtype in _HALVES else 1e-12


def gain(magnitude, norm):
    """magnitude / max(norm, eps), differentiable for the magnitude; the norm is a constant.

    The norm is first rounded to the type of the magnitude, never below it: so a magnitude that was
    made from the norm gives exactly 1. The quotient of halves is float32.

    Args:
        magnitude: one element per row, of any shape.
        norm: as many elements.

    Raises:
        ValueError: shapes or devices do not agree.
    """
    if magnitude.numel() != norm.numel():
        raise ValueError(f"magnitude: argument `magnitude` has shape {tuple(magnitude.shape)}, but "
                         f"the weight has {norm.numel()} rows; give it one element per row")
    if magnitude.device != norm.device:
        raise ValueError(f"magnitude: argument `magnitude` is on {magnitude.device} but the weight is "
                         f"on {norm.device}; move both to one device")
    norm = norm.detach().to(magnitude.dtype)
    wide = torch.float32 if magnitude.dtype in _HALVES else magnitude.dtype
    norm = norm.to(wide).clamp_min(eps(magnitude.dtype)).reshape(magnitude.shape)
    return magnitude.to(wide) / norm
