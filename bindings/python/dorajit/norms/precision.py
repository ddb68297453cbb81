"""Matrix products in full float32, whatever the settings of the process (TF32, autocast)."""

import contextlib

import torch

from dorajit import control
from dorajit.operations import recording

_FULL = {"fp32_precision": "ieee", "allow_tf32": False}


def _settings():
    """(backend, setting, value, value for full precision) for each device's matrix products."""
    for backend in (torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)):
        if backend is None:
            continue
        name = "fp32_precision"
        try:
            value = getattr(backend, name)
        except (AttributeError, AssertionError):  # before PyTorch 2.9
            if backend is not torch.backends.cuda.matmul:
                continue
            name, value = "allow_tf32", backend.allow_tf32
        # "none" inherits the global setting; if that is "none", too, products have full precision already.
        if value != "none" or getattr(torch.backends, "fp32_precision", "none") != "none":
            yield backend, name, value, _FULL[name]


_changed = []  # (backend, setting, value before) of the settings that _turn has changed


def _turn(full):
    """Turns TF32 and similar settings off, or restores them."""
    for backend, name, before, wanted in _settings() if full else ():
        if before != wanted:
            _changed.append((backend, name, before))
            setattr(backend, name, wanted)
    while not full and _changed:
        backend, name, before = _changed.pop()
        if name == "fp32_precision":
            # A setting that inherits the global one reads as that; writing its value would end the inheritance.
            backend.fp32_precision = "none"
            if backend.fp32_precision == before:
                continue
        setattr(backend, name, before)


_float32_products = control.Switch(_turn, False)


def is_autocast_enabled(device_type):
    """torch.is_autocast_enabled, which raises for devices without autocast; torch.compile can trace no other function."""
    return device_type != "meta" and torch.is_autocast_enabled(device_type)


def without_autocast(device_type):
    """Context without autocast; does nothing for device types without autocast, such as meta."""
    if is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()


def as_autocast(factor):
    """A factor of a product in the type to which autocast would cast it; unchanged outside of autocast."""
    kind = factor.device.type
    if factor.dtype is torch.float64 or not is_autocast_enabled(kind):
        return factor
    return factor.to(torch.get_autocast_dtype(kind))


def of_adapter(result):
    """Context for the module calls of an adapter beside this base result: autocast to its 16-bit type, if that is the
    chosen type of low-rank products (dorajit.set_low_rank_dtype)."""
    kind = result.device.type
    if (control.state.low_rank_dtype == "adapter" or result.dtype not in (torch.float16, torch.bfloat16)
            or kind == "meta" or is_autocast_enabled(kind)):
        return contextlib.nullcontext()
    return torch.autocast(kind, dtype=result.dtype)


@contextlib.contextmanager
def full(device_type):
    """Context without autograd, autocast, or products of less than float32."""
    with torch.no_grad(), without_autocast(device_type), _float32_products.override(True):
        yield


def is_mixed(a, b):
    """Whether mixed_product can compute a @ b.T without loss: `a` has 16 bits and the device has tensor cores for it.

    Products of two 16-bit numbers are exact in float32, and a float32 number is the sum of three bfloat16 numbers.
    """
    if a.dtype is torch.bfloat16:
        return b.dtype in (torch.bfloat16, torch.float32) and _has_mixed_products(a, (8, 0))
    # PyTorch gives no float32 result for float16 factors while allow_fp16_accumulation is on.
    return (a.dtype is torch.float16 and b.dtype is torch.float16 and _has_mixed_products(a, (0, 0))
            and not getattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", False))


def _has_mixed_products(tensor, least_capability):
    return (recording.is_cuda(tensor) and hasattr(torch.ops.aten.addmm, "dtype") and torch.version.hip is None
            and recording.target_of(tensor).capability >= least_capability)


def mixed_product(a, b, factor=1.0):
    """factor * a @ b in float32 on the 16-bit tensor cores, for operands for which is_mixed is true."""
    total = a.new_empty((a.shape[0], b.shape[1]), dtype=torch.float32)
    for i, part in enumerate((b,) if a.dtype == b.dtype else _bfloat16_parts(b)):
        # With beta = 0 the elements of `total` are not read.
        total = torch.addmm(total, a, part, out_dtype=torch.float32, beta=min(i, 1), alpha=factor)
    return total


def _bfloat16_parts(matrix):
    """Three bfloat16 matrices whose sum is the matrix, smallest first."""
    high = matrix.bfloat16()
    rest = matrix - high
    middle = rest.bfloat16()
    return (rest - middle).bfloat16(), middle, high


def terms(a, b, dtype):
    """Factors of a @ b for `added`: of 16 bits where tensor cores multiply them as exactly as type dtype needs.

    Two float32 matrices become the six products of their three bfloat16 parts that are not below the precision of
    float32, side by side along the rank.
    """
    if dtype is not torch.float32 or (a.dtype is b.dtype and is_mixed(a, b)):
        return (a, b) if dtype is torch.float32 else (a.to(dtype), b.to(dtype))
    a, b = a.float(), b.float()
    return _split(a, b) if _has_mixed_products(a, (8, 0)) else (a, b)


def _split(a, b):
    (low_a, middle_a, high_a), (low_b, middle_b, high_b) = map(_bfloat16_parts, (a, b))
    return (torch.cat((low_a, high_a, middle_a, middle_a, high_a, high_a), 1),
            torch.cat((high_b, low_b, middle_b, high_b, middle_b, high_b)))


def added(total, a, b, factor):
    """total + factor * a @ b for factors from `terms`, in the memory of `total` if they have its element type."""
    if a.dtype is total.dtype:
        return total.addmm_(a, b, alpha=factor)
    return torch.addmm(total, a, b, out_dtype=total.dtype, alpha=factor)
