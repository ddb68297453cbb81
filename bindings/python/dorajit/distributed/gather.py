"""Parameters that FSDP, DTensor or DeepSpeed has sharded: how, determined without importing these; and contexts that gather
them for the time in which a norm is computed."""

import contextlib
import gc
import sys

import torch

from dorajit import checks
from dorajit.control import state

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


def is_fsdp2_module(module):
    """Whether fully_shard was applied to the module itself."""
    return isinstance(module, _fsdp2())


def missing(tensor, least_dims=0):
    """A message with the remedy if this process does not have all elements of a tensor; None if it does. `least_dims`: the
    least number of dimensions of the whole tensor; FSDP1 leaves a shard with one."""
    if torch.compiler.is_compiling():
        return None
    status = getattr(getattr(tensor, "ds_status", None), "name", "AVAILABLE")
    if status != "AVAILABLE":
        return (f"is a parameter of DeepSpeed ZeRO-3 that is not gathered (its status is {status}, its shape "
                f"{tuple(getattr(tensor, 'ds_shape', tensor.shape))}); use it inside "
                "deepspeed.zero.GatheredParameters")
    # A parameter of FSDP1, or a view of its flat parameter.
    if tensor.dim() < least_dims and ("_fsdp_flattened" in tensor.__dict__
                                      or getattr(tensor._base, "_fsdp_flattened", False)):
        return (f"is the local part, of shape {tuple(tensor.shape)}, of a parameter of "
                "FullyShardedDataParallel; use it in the module's forward or inside "
                "FullyShardedDataParallel.summon_full_params")
    return checks.freed(tensor)


def is_gathered_copy(tensor):
    """Whether the tensor is a copy that fully_shard has gathered and will discard, so that writes to it are lost.

    Slow: it searches the objects that refer to the tensor.
    """
    kind = _fsdp2()
    if not kind or not kind.__subclasses__():  # fully_shard derives a subclass for each module
        return False
    def holds(one):
        found = one if isinstance(one, dict) else getattr(one, "__dict__", {})
        return found.get("_unsharded_param") is tensor
    return any(map(holds, gc.get_referrers(tensor)))


_NOTHING = contextlib.nullcontext()
# Without a process group no framework shards parameters.
_has_group = torch.distributed.is_initialized if torch.distributed.is_available() else bool


def whole(*owners):
    """Context in which the parameters of modules, or the given parameters, are gathered.

    Parameters that are whole already stay so after the context. Collective: all ranks must enter it in the same order.
    Parameters must not be written inside. Raises ValueError if some are not whole after the gather; with
    PEFT_DORA_ALLOW_PARTIAL_GATHER=1 only reading such a parameter raises an error.
    """
    if torch.compiler.is_compiling() or not _has_group():
        return _NOTHING
    parts = [] if "deepspeed" not in sys.modules else [
        one for one in _parameters(owners) if getattr(getattr(one, "ds_status", None), "name", "AVAILABLE") != "AVAILABLE"]
    units = _sharded_units(owners)
    return _all_gathered(parts, units) if parts or units else _NOTHING


@contextlib.contextmanager
def _all_gathered(parts, units):
    with contextlib.ExitStack() as stack:
        if parts:
            import deepspeed
            stack.enter_context(deepspeed.zero.GatheredParameters(parts))
            left = [one for one in parts if missing(one)]
            if left and not state.partial_gather:
                raise ValueError(
                    f"dorajit: {len(left)} of {len(parts)} parameters were not gathered; the first "
                    f"{missing(left[0])}, or set PEFT_DORA_ALLOW_PARTIAL_GATHER=1 if nothing reads it")
        for unit in units:
            stack.enter_context(fsdp1().summon_full_params(unit, recurse=False, writeback=False))
        yield


def constant(module, name):
    """A parameter of a frozen module as a whole plain tensor that stays valid after the gather: itself if it is whole, else
    a copy; None if the module has no such parameter. Raises ValueError if it is trained and sharded, so that its gradient
    would be lost."""
    found = getattr(module, name, None)
    if found is None or (not torch.compiler.is_compiling() and not _has_group()):
        return found
    is_unit = unwrapped(module) is not module and _is_sharded(module)
    is_whole = not is_unit and is_here(found, least_dims=0)
    if found.requires_grad and torch.is_grad_enabled() and not is_whole:
        raise ValueError(f"{type(module).__name__}: `{name}` is trained but sharded by itself, and its "
                         "gradient would not be complete; freeze it (LoraConfig's bias=\"none\"), or let "
                         "FSDP or ZeRO-3 wrap the layers around it and not the base layer")
    if is_whole:
        return found
    with torch.no_grad():
        if is_dtensor(found):
            return found.full_tensor()
        with whole(module if is_unit else found):
            found = getattr(module, name)
            require(type(module).__name__, name, found, least_dims=0)
            return found.detach().clone()


def is_here(tensor, least_dims=2):
    """Whether a parameter is a plain tensor with all of its elements in this process."""
    return not is_dtensor(tensor) and missing(tensor, least_dims) is None


def unwrapped(module):
    """The module inside a FullyShardedDataParallel wrapper; any other module unchanged."""
    if torch.compiler.is_compiling():
        return module
    return module.module if isinstance(module, fsdp1()) else module


def require(function, name, tensor, least_dims=2):
    """Raises ValueError naming the tensor if this process does not have all of its elements."""
    why = missing(tensor, least_dims)
    if why:
        raise ValueError(f"{function}: argument `{name}` {why}")


def require_writable(function, name, tensor):
    """Raises ValueError naming the parameter if it is not whole, or is a copy that will be discarded."""
    require(function, name, tensor)
    if is_gathered_copy(tensor):
        raise ValueError(f"{function}: argument `{name}` is a copy that fully_shard has gathered for a "
                         "forward pass and will discard; call reshard() of the sharded module first")


def _parameters(owners):
    for owner in owners:
        yield from (owner,) if isinstance(owner, torch.Tensor) else owner.parameters()


def _sharded_units(owners):
    """The FSDP1 modules whose parameters are not gathered now, outermost first."""
    wrapper = fsdp1()
    if not wrapper:
        return []
    units = {}
    for owner in owners:
        if isinstance(owner, torch.nn.Module):
            units.update((id(one), one) for one in owner.modules() if isinstance(one, wrapper))
    return [unit for unit in units.values() if _is_sharded(unit)]


def _is_sharded(unit):
    handle = getattr(unit, "_handle", None)
    return handle is not None and handle.needs_unshard()
