"""Checks the results of a contender."""

import dataclasses
import math

import torch

# Limits of |result - expected| / |expected| by the activations' type, to which eager operations round.
_ERROR_LIMITS = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float32: 1e-4}
_SUM_ERROR_LIMIT = 1e-5
_ROUNDING = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-24}


@dataclasses.dataclass
class Expected:
    """Expected values in fp32 or wider. For a sum, whose order is free, also the sum of its terms' magnitudes."""
    values: torch.Tensor
    magnitudes: torch.Tensor | None = None


def poison(outputs):
    for tensor in outputs.values():
        tensor.fill_(math.nan)


def errors(outputs, expected):
    """The relative error of each output."""
    return {name: _relative_error(tensor, expected[name].values)
            for name, tensor in outputs.items()}


def within_limits(errors_by_output, dtype):
    """Whether errors are within the limits; NaN, the value of unwritten elements, is not."""
    return all(error <= _ERROR_LIMITS[dtype] for error in errors_by_output.values())


def exact(outputs, expected):
    """dorajit's contract: every element is the fp32 evaluation rounded once, and a sum is exact to
    1e-5 of its terms."""
    return all(_exact(tensor, expected[name]) for name, tensor in outputs.items())


def _relative_error(tensor, values):
    difference = torch.linalg.vector_norm(tensor.double() - values.double())
    return (difference / torch.linalg.vector_norm(values.double())).item()


def _exact(tensor, expected):
    if expected.magnitudes is None:
        return torch.equal(tensor, expected.values.to(tensor.dtype))
    # Subnormal numbers have the spacing of the smallest normal number.
    rounded = expected.values.abs().clamp(min=torch.finfo(tensor.dtype).tiny)
    allowed = _SUM_ERROR_LIMIT * expected.magnitudes + _ROUNDING[tensor.dtype] * rounded
    return bool(((tensor.double() - expected.values).abs() <= allowed).all())
