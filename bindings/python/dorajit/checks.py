"""Checks of arguments. Calls that a kernel serves at once do not come here."""

import math

import torch

# The types of tensors whose operations nothing but PyTorch handles; a recording (dorajit.operations.recording) adds one.
PLAIN = {torch.Tensor, torch.nn.Parameter}


def scale(function, value):
    """The scale as a float. Raises TypeError if it is not a number, or is a tensor, whose reading would synchronize the
    device."""
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


def float_scale(function, value):
    """The scale as a float, or a number that a compiler traces. For calls that a tracer may see."""
    if type(value) is float or (torch.compiler.is_compiling() and not isinstance(value, (bool, torch.Tensor))):
        return value
    return scale(function, value)


def tensors(function, **arguments):
    """Raises TypeError naming the first argument that is not a dense tensor of floating point numbers, and ValueError
    naming the first whose memory was freed."""
    for name, tensor in arguments.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{function}: argument `{name}` is a {type(tensor).__name__}; pass a tensor")
        if not tensor.is_floating_point():
            raise TypeError(f"{function}: argument `{name}` has elements of {tensor.dtype}; pass floating point numbers")
        if tensor.layout is not torch.strided or tensor.is_nested:
            kind = "is a nested tensor" if tensor.is_nested else f"has the layout {tensor.layout}"
            raise TypeError(f"{function}: argument `{name}` {kind}; pass a dense tensor")
        gone = freed(tensor)
        if gone:
            raise ValueError(f"{function}: argument `{name}` {gone}")


def freed(tensor):
    """A message with the remedy if the storage of a plain tensor was resized to zero bytes, as FSDP does; None otherwise."""
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
    """Raises RuntimeError if the tensor is an inference tensor and inference mode is off, so that it may not be written."""
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


def operands(function, operation, inputs):
    """Raises a TypeError or ValueError that names the first wrong input of an operation; None for those left out."""
    given = operation.given(inputs)
    tensors(function, **given)
    same_device(function, **given)
    alike, known = {}, {}  # dimensions of an operand -> (name, tensor); a dimension -> (name, size)
    for operand in operation.inputs:
        tensor = given.get(operand.name)
        if tensor is None or operand.is_per_channel:
            continue
        name, other = alike.setdefault(operand.dimensions, (operand.name, tensor))
        if tensor.shape != other.shape:
            raise ValueError(f"{function}: argument `{operand.name}` has shape {tuple(tensor.shape)} but "
                             f"`{name}` has {tuple(other.shape)}; give both the same shape")
        for dimension, extent in operand.extents(tensor).items():
            size = math.prod(extent)
            name, other = known.setdefault(dimension, (operand.name, size))
            if size != other:
                raise ValueError(f"{function}: argument `{operand.name}` has {size} `{dimension}` but "
                                 f"`{name}` has {other}; give both the same number")
    if operation.has_channels:
        _per_channel(function, operation, given)


def _per_channel(function, operation, given):
    """Raises ValueError if the gain, leading dimensions of size 1 aside, cannot be broadcast to the first input, or
    another operand with one element per channel has not as many elements."""
    first_name, first = next(iter(given.items()))
    (gain_name, gain), *others = ((one.name, given[one.name]) for one in operation.inputs
                                  if one.is_per_channel and one.name in given)
    shape, target = tuple(gain.shape), tuple(first.shape)
    extra = max(len(shape) - len(target), 0)
    if any(size != 1 for size in shape[:extra]) or any(a not in (1, b) for a, b in zip(reversed(shape), reversed(target))):
        raise ValueError(f"{function}: argument `{gain_name}` has shape {shape}, which cannot be broadcast to that of "
                         f"`{first_name}`, {target}; give one element per channel")
    for name, other in others:
        if other.numel() != gain.numel():
            raise ValueError(f"{function}: argument `{name}` has shape {tuple(other.shape)} but "
                             f"`{gain_name}` has {tuple(gain.shape)}; give both one element per channel")
