"""The gain g = magnitude / norm of DoRA."""

import torch

from dorajit.distributed import frameworks

_HALVES = frozenset({torch.float16, torch.bfloat16})


def eps(dtype):
    """The least norm that a magnitude of this type is divided by."""
    return 1e-6 if dtype in _HALVES else 1e-12


def divisor(norm, dtype):
    """What a magnitude of this type is divided by: the norm, rounded to that type and no less than eps; of halves in
    float32."""
    wide = torch.float32 if dtype in _HALVES else dtype
    return norm.to(dtype).to(wide).clamp_min(eps(dtype))


def gain(magnitude, norm):
    """magnitude / max(norm, eps), differentiable for the magnitude; the norm is a constant.

    The norm is first rounded to the type of the magnitude, never below it: so a magnitude that was
    made from the norm gives exactly 1. The quotient of halves is float32.

    Args:
        magnitude: one element per row, of any shape.
        norm: as many elements. A DTensor is brought to where the magnitude is.

    Returns:
        A tensor of the magnitude's shape; a DTensor if the magnitude is one.

    Raises:
        ValueError: shapes or devices do not agree; the magnitude is not gathered, or is a DTensor
            over another mesh than the norm.
    """
    return with_divisor(magnitude, norm)[1]


def with_divisor(magnitude, norm):
    """What the magnitude is divided by, in its shape, and the gain; as `gain` otherwise."""
    missing = frameworks.missing(magnitude)
    if missing:
        raise ValueError(f"magnitude: argument `magnitude` {missing}")
    if magnitude.numel() != norm.numel():
        raise ValueError(f"magnitude: argument `magnitude` has shape {tuple(magnitude.shape)}, but "
                         f"the weight has {norm.numel()} rows; give it one element per row")
    if magnitude.device != norm.device:
        raise ValueError(f"magnitude: argument `magnitude` is on {magnitude.device} but the weight is "
                         f"on {norm.device}; move both to one device")
    if frameworks.is_dtensor(magnitude) or frameworks.is_dtensor(norm):
        norm = _beside(magnitude, norm.detach())
    made = divisor(norm.detach(), magnitude.dtype).reshape(magnitude.shape)
    return made, magnitude.to(made.dtype) / made


def _beside(magnitude, norm):
    """The norm in the magnitude's shape, laid out over ranks as the magnitude is."""
    with torch.no_grad():
        if not frameworks.is_dtensor(magnitude):
            return norm.full_tensor()
        if not frameworks.is_dtensor(norm) or norm.device_mesh != magnitude.device_mesh:
            weight = f"over {norm.device_mesh}" if frameworks.is_dtensor(norm) else "a plain tensor"
            raise ValueError(f"magnitude: argument `magnitude` is a DTensor over "
                             f"{magnitude.device_mesh} but the weight is {weight}; shard both alike")
        if norm.placements == magnitude.placements and norm.dim() == magnitude.dim():
            return norm
        whole = type(norm).from_local(norm.full_tensor().reshape(magnitude.shape), norm.device_mesh,
                                      run_check=False)
        return whole.redistribute(placements=magnitude.placements)
