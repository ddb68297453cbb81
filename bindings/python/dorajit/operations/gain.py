"""The gain g = magnitude / norm of DoRA (arXiv:2603.22276, appendix A)."""

import torch

from dorajit import checks
from dorajit.distributed import gather

HALVES = frozenset({torch.float16, torch.bfloat16})


def eps(dtype):
    """The lower bound of the norm by which a magnitude of this type is divided."""
    return 1e-6 if dtype is torch.float16 else 1e-12


def magnitude_of(norm, dtype):
    """A magnitude of this type that has a gain of exactly 1 for these norms."""
    return divisor(norm, dtype).to(dtype)


def divisor(norm, dtype):
    """The divisor of a magnitude of this type: max(norm, eps) rounded to that type, in float32 for 16-bit types."""
    wide = torch.float32 if dtype in HALVES else dtype
    return norm.clamp_min(eps(dtype)).to(dtype).to(wide)


def gain(magnitude, norm):
    """magnitude / max(norm, eps), differentiable for the magnitude; the norm is a constant.

    max(norm, eps) is rounded to the magnitude's type, so that a magnitude made from the norm gives
    exactly 1. The gain of a 16-bit magnitude is float32.

    Both have one element per row; the result has the magnitude's shape and placements. Raises the TypeError or ValueError
    of a magnitude that is not a tensor of floating point numbers, does not agree with the norm, or is not gathered.
    """
    return with_divisor(magnitude, norm)[1]


def with_divisor(magnitude, norm):
    """(divisor, gain), both in the magnitude's shape. Arguments and errors are those of `gain`."""
    if not isinstance(magnitude, torch.Tensor):
        raise TypeError(f"magnitude: argument `magnitude` is a {type(magnitude).__name__}; give the layer a tensor with one "
                        f"element for each of the weight's {norm.numel()} rows, which checkpoints have under "
                        "`lora_magnitude_vector`")
    checks.tensors("magnitude", magnitude=magnitude)
    gather.require("magnitude", "magnitude", magnitude, least_dims=0)
    if magnitude.numel() != norm.numel():
        raise ValueError(f"magnitude: argument `magnitude` has shape {tuple(magnitude.shape)}, but "
                         f"the weight has {norm.numel()} rows; give it one element per row")
    if magnitude.device != norm.device:
        raise ValueError(f"magnitude: argument `magnitude` is on {magnitude.device} but the weight is "
                         f"on {norm.device}; move both to one device")
    if gather.is_dtensor(magnitude) or gather.is_dtensor(norm):
        norm = _beside(magnitude, norm.detach())
    made = divisor(norm.detach(), magnitude.dtype).reshape(magnitude.shape)
    return made, magnitude.to(made.dtype) / made


def _beside(magnitude, norm):
    """The norm in the magnitude's shape and, over several ranks, with the magnitude's placements."""
    with torch.no_grad():
        if not gather.is_dtensor(magnitude):
            return norm.full_tensor()
        if not gather.is_dtensor(norm) or norm.device_mesh != magnitude.device_mesh:
            weight = f"over {norm.device_mesh}" if gather.is_dtensor(norm) else "a plain tensor"
            raise ValueError(f"magnitude: argument `magnitude` is a DTensor over "
                             f"{magnitude.device_mesh} but the weight is {weight}; shard both alike")
        if norm.placements == magnitude.placements and norm.dim() == magnitude.dim():
            return norm
        whole = type(norm).from_local(norm.full_tensor().reshape(magnitude.shape), norm.device_mesh, run_check=False)
        return whole.redistribute(placements=magnitude.placements)
