"""Checks of arguments. Calls that a kernel serves at once do not come here."""

import math

import torch

# The types of tensors whose operations nothing but PyTorch handles.
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def scale(function, value):
    """The scale as a float.

    Raises:
        TypeError: the value is not a number, or is a tensor, whose reading would synchronize the device.
    """
    if isinstance(value, (torch.SymFloat, torch.SymInt)):
        return value
    is_bool = isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", None) == "b"
    is_number = hasattr(type(value), "__float__") or hasattr(type(value), "__index__")
    if isinstance(value, torch.Tensor) or is_bool or not is_number:
        raise TypeError(f"{function}: argument `scale` is a {type(value).__name__}; pass a float"
                        + (", as .item() makes it" if isinstance(value, torch.Tensor) else ""))
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{function}: argument `scale` cannot be converted to a float: {error}") from None


def tensors(function, **arguments):
    """Raises TypeError naming the first argument that is not a dense tensor of floating point numbers, and ValueError
    naming the first whose memory was freed."""
    for name, tensor in arguments.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{function}: argument `{name}` is a {type(tensor).__name__}; pass a "
                            "tensor")
        if not tensor.is_floating_point():
            raise TypeError(f"{function}: argument `{name}` has elements of {tensor.dtype}; pass "
                            "floating point numbers")
        if tensor.layout is not torch.strided or tensor.is_nested:
            kind = "is a nested tensor" if tensor.is_nested else f"has the layout {tensor.layout}"
            raise TypeError(f"{function}: argument `{name}` {kind}; pass a dense tensor")
        gone = freed(tensor)
        if gone:
            raise ValueError(f"{function}: argument `{name}` {gone}")


def freed(tensor):
    """A message with the remedy if the storage of a plain tensor was resized to zero bytes, as FSDP does;
    None otherwise."""
    if (torch.compiler.is_compiling() or type(tensor) not in PLAIN
            or tensor.device.type not in ("cpu", "cuda") or not is_freed(tensor)):
        return None
    return (f"has shape {tuple(tensor.shape)} but its memory was freed, as FSDP does with weights "
            "between forward passes; use it in the module's forward, or inside "
            "FullyShardedDataParallel.summon_full_params")


def is_freed(tensor):
    """Whether the storage of a plain tensor with elements was resized to zero bytes; faster than freed()."""
    try:
        return not tensor.untyped_storage().nbytes() and tensor.numel() > 0
    except RuntimeError:  # inside a torch.func transform a tensor has no storage
        return False


def not_frozen(function, name, tensor):
    """Raises RuntimeError if the tensor is an inference tensor and inference mode is off, so that it may not be
    written."""
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(f"{function}: argument `{name}` is an inference tensor, which may not be written "
                           "in place outside of inference mode; pass a clone")


def same_device(function, **arguments):
    """Raises ValueError naming the first tensor that is on another device than the first argument."""
    (first, reference), *others = arguments.items()
    for name, tensor in others:
        if tensor.device != reference.device:
            raise ValueError(f"{function}: argument `{name}` is on {tensor.device} but `{first}` is "
                             f"on {reference.device}; move both to one device")


def broadcasts(function, name, tensor, over_name, over):
    """Raises ValueError if the tensor, leading dimensions of size 1 aside, cannot be broadcast to `over`."""
    shape, target = tuple(tensor.shape), tuple(over.shape)
    extra = max(len(shape) - len(target), 0)
    aligned = zip(reversed(shape), reversed(target))
    if any(size != 1 for size in shape[:extra]) or any(a not in (1, b) for a, b in aligned):
        raise ValueError(f"{function}: argument `{name}` has shape {shape}, which cannot be "
                         f"broadcast to that of `{over_name}`, {target}; give one element per "
                         "channel")


def operands(function, operation, inputs):
    """Checks the inputs of an operation, None for those that are left out (dorajit.operations.table).

    Raises:
        TypeError, ValueError: naming the first wrong input.
    """
    given = operation.given(inputs)
    tensors(function, **given)
    same_device(function, **given)
    pairs = [(one, given[one.name]) for one in operation.inputs if one.name in given]
    agree(function, [pair for pair in pairs if not pair[0].is_per_channel])
    if not operation.has_channels:
        return
    first_name, first = next(iter(given.items()))
    (gain_name, gain), *others = ((one.name, tensor) for one, tensor in pairs if one.is_per_channel)
    broadcasts(function, gain_name, gain, first_name, first)
    for name, other in others:
        if other.numel() != gain.numel():
            raise ValueError(f"{function}: argument `{name}` has shape {tuple(other.shape)} but "
                             f"`{gain_name}` has {tuple(gain.shape)}; give both one element per channel")


def agree(function, pairs):
    """Checks pairs of an operand and its tensor.

    Raises:
        ValueError: two operands with the same dimensions have different shapes, or two that share a dimension
            have different sizes of it.
    """
    alike = {}
    for operand, tensor in pairs:
        first_name, first = alike.setdefault(operand.dimensions, (operand.name, tensor))
        if tensor.shape != first.shape:
            raise ValueError(f"{function}: argument `{operand.name}` has shape {tuple(tensor.shape)} but "
                             f"`{first_name}` has {tuple(first.shape)}; give both the same shape")
    if len(alike) < 2:
        return
    known = {}
    for operand, tensor in pairs:
        for dimension, extent in operand.extents(tensor).items():
            size = math.prod(extent)
            name, other = known.setdefault(dimension, (operand.name, size))
            if size != other:
                raise ValueError(f"{function}: argument `{operand.name}` has {size} `{dimension}` but "
                                 f"`{name}` has {other}; give both the same number")
