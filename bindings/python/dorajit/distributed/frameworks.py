"""How FSDP, DTensor and DeepSpeed have sharded a tensor, determined without importing them."""

import gc
import sys

import torch

from dorajit import checks

_FSDP2 = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")


def _loaded(module, name):
    """A class of the module; (), of which nothing is an instance, in a process that has not loaded the module."""
    return getattr(sys.modules.get(module), name, ())


def is_dtensor(tensor):
    """Whether the tensor is a DTensor."""
    return type(tensor) not in checks.PLAIN and isinstance(tensor, _loaded("torch.distributed.tensor", "DTensor"))


def local(tensor):
    """The local part of a DTensor, or a plain tensor, without its graph; it has the same memory."""
    if is_dtensor(tensor):
        with torch.no_grad():
            tensor = tensor.to_local()
        tensor = tensor.wait() if hasattr(tensor, "wait") else tensor
    return tensor.detach()


def fsdp1():
    """The class FullyShardedDataParallel, or () in a process that has not loaded it."""
    return _loaded("torch.distributed.fsdp", "FullyShardedDataParallel")


def _fsdp2():
    for module in _FSDP2:  # a loop, which the compilers of all supported versions of PyTorch trace
        kind = _loaded(module, "FSDPModule")
        if kind:
            return kind
    return ()


def _is_fsdp2_in_use():
    """Whether fully_shard was called in this process: it derives a subclass for each module."""
    kind = _fsdp2()
    return bool(kind and kind.__subclasses__())


def is_fsdp2_module(module):
    """Whether fully_shard was applied to the module itself."""
    return isinstance(module, _fsdp2())


def _is_flattened(tensor):
    """Whether the tensor is a parameter of FSDP1, or a view of its flat parameter."""
    base = tensor._base
    return ("_fsdp_flattened" in tensor.__dict__
            or base is not None and getattr(base, "_fsdp_flattened", False))


def missing(tensor, least_dims=0):
    """A message with the remedy if this process does not have all elements of a tensor; None if it does.

    Args:
        least_dims: the least number of dimensions of the whole tensor; FSDP1 leaves a shard with one.
    """
    if torch.compiler.is_compiling():
        return None
    status = getattr(getattr(tensor, "ds_status", None), "name", "AVAILABLE")
    if status != "AVAILABLE":
        return (f"is a parameter of DeepSpeed ZeRO-3 that is not gathered (its status is {status}, its shape "
                f"{tuple(getattr(tensor, 'ds_shape', tensor.shape))}); use it inside "
                "deepspeed.zero.GatheredParameters")
    if tensor.dim() < least_dims and _is_flattened(tensor):
        return (f"is the local part, of shape {tuple(tensor.shape)}, of a parameter of "
                "FullyShardedDataParallel; use it in the module's forward or inside "
                "FullyShardedDataParallel.summon_full_params")
    return checks.freed(tensor)


def is_gathered_copy(tensor):
    """Whether the tensor is a copy that fully_shard has gathered and will discard, so that writes to it are lost.

    Slow: it searches the objects that refer to the tensor.
    """
    if not _is_fsdp2_in_use():
        return False
    def holds(one):
        found = one if isinstance(one, dict) else getattr(one, "__dict__", {})
        return found.get("_unsharded_param") is tensor
    return any(map(holds, gc.get_referrers(tensor)))
