"""Operands, and reference implementations of the operations in PyTorch, independent of the package.

Arithmetic is in float32, or float64 for float64 operands, with one rounding at the end.
"""

import numpy
import pytest
import torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SCALE = 0.4375  # exact in every type


def operands(shape, device, dtype=torch.float32, gain_dtype=None, gain_shape=None, grad=False):
    """lora, base and a gain near 1."""
    lora = torch.randn(shape, device=device).to(dtype)
    base = torch.randn(shape, device=device).to(dtype)
    gain_shape = shape[-1:] if gain_shape is None else gain_shape
    gain = (1 + torch.randn(gain_shape, device=device) / 16).to(gain_dtype or dtype)
    return [tensor.requires_grad_(grad) for tensor in (lora, base, gain)]


def wide(*tensors):
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
    return [tensor.detach().to(dtype) for tensor in tensors]


def compose(lora, base, gain, scale):
    l, b, g = wide(lora, base, gain)
    return ((g - 1) * b + g * (scale * l)).to(lora.dtype)


def inner(lora, base, scale):
    l, b = wide(lora, base)
    return (scale * l + b).to(lora.dtype)


def gradients(d_out, saved, gain, scale):
    d, i, g = wide(d_out, saved, gain)
    d_gain = (i.double() * d.double()).sum_to_size(gain.shape)
    return ((g * scale) * d).to(d_out.dtype), ((g - 1) * d).to(d_out.dtype), d_gain


def norm(w, cross, ba, scale):
    w, cross, ba = wide(w, cross, ba)
    # PyTorch's square root on CPUs is not always correctly rounded; NumPy's is.
    square = ((w + (2 * scale) * cross) + (scale * scale) * ba).clamp_min(0)
    return torch.from_numpy(numpy.sqrt(square.detach().cpu().numpy())).to(w.device)


def exact_norm(weight, a, b, scale):
    """The norms of the rows of weight + scale * b @ a, in float64."""
    weight, a, b = (one.detach().double().flatten(1) for one in (weight, a, b))
    return (weight + scale * (b @ a)).norm(dim=1)


def assert_norm(found, expected):
    step = 1e-13 if found.dtype == torch.float64 else 2e-6
    torch.testing.assert_close(found.double(), expected, rtol=step, atol=0)


def assert_sum_close(actual, exact, gain_dtype):
    """Compares d_gain with its float64 value, within the rounding of its type and of a float32 tree."""
    step = torch.finfo(gain_dtype).eps
    bound = exact.abs() * max(step, 1e-5) + 1e-4
    assert (actual.double() - exact).abs().le(bound).all()


def assert_same_output(actual, expected, low_rank_type=None):
    """Compares outputs of a layer from two implementations: to the bit, except on a GPU with 16-bit results, where one
    of them may keep the low-rank result in float32 and the other may round it."""
    assert actual.dtype is expected.dtype
    if not expected.is_cuda or low_rank_type not in (torch.float16, torch.bfloat16):
        assert torch.equal(actual, expected)
        return
    step = torch.finfo(low_rank_type).eps
    torch.testing.assert_close(actual, expected, rtol=2 * step, atol=step * expected.abs().max().item())


def perturb(model):
    """Adds noise to trained parameters, the same for every device and type; returns the model."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator) / 8
                parameter.add_(noise.to(parameter.device, parameter.dtype))
    return model
