"""Gathers parameters that FSDP1 or ZeRO-3 has sharded, for the time in which a norm is computed."""

import contextlib
import sys

import torch

from dorajit.control import state
from dorajit.distributed import frameworks


_NOTHING = contextlib.nullcontext()
# Without a process group no framework shards parameters.
_has_group = torch.distributed.is_initialized if torch.distributed.is_available() else bool


def whole(*owners):
    """Context in which the parameters of modules, or the given parameters, are gathered.

    Parameters that are whole already stay so after the context. Collective:
    all ranks must enter it in the same order. Parameters must not be written inside.

    Raises:
        ValueError: some are not whole after the gather. With PEFT_DORA_ALLOW_PARTIAL_GATHER=1 this is not
            checked here; reading a parameter that is not whole raises an error.
    """
    if torch.compiler.is_compiling() or not _has_group():
        return _NOTHING
    parts, units = _partitioned(owners), _sharded_units(owners)
    return _all_gathered(parts, units) if parts or units else _NOTHING


@contextlib.contextmanager
def _all_gathered(parts, units):
    with contextlib.ExitStack() as stack:
        if parts:
            import deepspeed
            stack.enter_context(deepspeed.zero.GatheredParameters(parts))
            left = [one for one in parts if frameworks.missing(one)]
            if left and not state.partial_gather:
                raise ValueError(
                    f"dorajit: {len(left)} of {len(parts)} parameters were not gathered; the first "
                    f"{frameworks.missing(left[0])}, or set PEFT_DORA_ALLOW_PARTIAL_GATHER=1 if nothing reads it")
        for unit in units:
            stack.enter_context(frameworks.fsdp1().summon_full_params(unit, recurse=False, writeback=False))
        yield


def constant(module, name):
    """A parameter of a frozen module as a whole plain tensor that stays valid after the gather.

    Returns:
        The parameter itself if it is whole, else a copy; None if the module has no such parameter.

    Raises:
        ValueError: the parameter is trained and sharded, so that its gradient would be lost.
    """
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
        if frameworks.is_dtensor(found):
            return found.full_tensor()
        with whole(module if is_unit else found):
            found = getattr(module, name)
            require(type(module).__name__, name, found, least_dims=0)
            return found.detach().clone()


def is_here(tensor, least_dims=2):
    """Whether a parameter is a plain tensor with all of its elements in this process."""
    return not frameworks.is_dtensor(tensor) and frameworks.missing(tensor, least_dims) is None


def unwrapped(module):
    """The module inside a FullyShardedDataParallel wrapper; any other module unchanged."""
    if torch.compiler.is_compiling():
        return module
    return module.module if isinstance(module, frameworks.fsdp1()) else module


def require(function, name, tensor, least_dims=2):
    """Raises ValueError naming the tensor if this process does not have all of its elements."""
    missing = frameworks.missing(tensor, least_dims)
    if missing:
        raise ValueError(f"{function}: argument `{name}` {missing}")


def require_writable(function, name, tensor):
    """Raises ValueError naming the parameter if it is not whole, or is a copy that will be discarded."""
    require(function, name, tensor)
    if frameworks.is_gathered_copy(tensor):
        raise ValueError(f"{function}: argument `{name}` is a copy that fully_shard has gathered for a "
                         "forward pass and will discard; call reshard() of the sharded module first")


def _parameters(owners):
    for owner in owners:
        yield from (owner,) if isinstance(owner, torch.Tensor) else owner.parameters()


def _partitioned(owners):
    if "deepspeed" not in sys.modules:
        return []
    return [one for one in _parameters(owners)
            if getattr(getattr(one, "ds_status", None), "name", "AVAILABLE") != "AVAILABLE"]


def _sharded_units(owners):
    """The FSDP1 modules whose parameters are not gathered now, outermost first."""
    wrapper = frameworks.fsdp1()
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
