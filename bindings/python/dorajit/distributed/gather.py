"""Whole parameters for as long as a norm is taken, where FSDP1 or ZeRO-3 has taken them apart."""

import contextlib
import sys

import torch

from dorajit.control import state
from dorajit.distributed import frameworks


@contextlib.contextmanager
def whole(*owners):
    """Context in which the parameters of modules, or parameters themselves, are whole.

    Those that are whole already stay as they are, and are not taken apart on leaving. Collective:
    all ranks enter it in the same order. Inside, nothing may be written to them.

    Raises:
        ValueError: after the gather some are not whole. With PEFT_DORA_ALLOW_PARTIAL_GATHER=1 only
            those matter that are read, and reading them says so.
    """
    parts, units = [], []
    if _is_distributed():
        parts, units = _partitioned(owners), _sharded_units(owners)
    if not parts and not units:
        yield
        return
    with contextlib.ExitStack() as stack:
        if parts:
            stack.enter_context(_gathered(parts))
        for unit in units:
            stack.enter_context(frameworks.fsdp1().summon_full_params(unit, recurse=False,
                                                                   writeback=False))
        yield


def constant(module, name):
    """A parameter of a frozen module as a whole plain tensor that outlives what it was gathered for.

    Returns:
        The parameter itself where it is whole; None if it is that.

    Raises:
        ValueError: it is trained and lies elsewhere, so that its gradient would be lost.
    """
    found = getattr(module, name)
    if found is None:
        return None
    if found.requires_grad and torch.is_grad_enabled() and not _is_at_hand(module, found):
        raise ValueError(f"{type(module).__name__}: `{name}` is trained but sharded by itself, and its "
                         "gradient would not be whole; freeze it (LoraConfig's bias=\"none\"), or let "
                         "FSDP or ZeRO-3 wrap the layers around it and not the base layer")
    with torch.no_grad():
        if frameworks.is_dtensor(found):
            return found.full_tensor()
        unit = unwrapped(module) is not module and _is_sharded(module)
        if _is_at_hand(module, found):
            return found
        with whole(module if unit else found):
            found = getattr(module, name)
            require(type(module).__name__, name, found, least_dims=0)
            return found.detach().clone()


def _is_at_hand(module, parameter):
    """Whether a parameter of the module is whole where it stands."""
    is_unit = unwrapped(module) is not module and _is_sharded(module)
    return not is_unit and is_here(parameter, least_dims=0)


def is_here(tensor, least_dims=2):
    """Whether all elements of a parameter are here and plain."""
    return not frameworks.is_dtensor(tensor) and frameworks.missing(tensor, least_dims) is None


def unwrapped(module):
    """The module that FullyShardedDataParallel wraps; any other as it is."""
    if torch.compiler.is_compiling():
        return module
    wrapper = frameworks.fsdp1()
    return module.module if wrapper is not None and isinstance(module, wrapper) else module


def require(function, name, tensor, least_dims=2):
    """Raises ValueError naming a tensor whose elements are not all here."""
    missing = frameworks.missing(tensor, least_dims)
    if missing:
        raise ValueError(f"{function}: argument `{name}` {missing}")


def require_writable(function, name, tensor):
    """Raises ValueError naming a parameter that is not here, or whose copy here is thrown away."""
    require(function, name, tensor)
    if frameworks.is_gathered_copy(tensor):
        raise ValueError(f"{function}: argument `{name}` is a copy that fully_shard has gathered for a "
                         "forward pass and throws away; call reshard() of the sharded module before")


def _is_distributed():
    if torch.compiler.is_compiling():
        return False
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _parameters(owners):
    for owner in owners:
        yield from (owner,) if isinstance(owner, torch.Tensor) else owner.parameters()


def _partitioned(owners):
    if "deepspeed" not in sys.modules:
        return []
    return [one for one in _parameters(owners)
            if getattr(getattr(one, "ds_status", None), "name", "AVAILABLE") != "AVAILABLE"]


@contextlib.contextmanager
def _gathered(parameters):
    import deepspeed
    with deepspeed.zero.GatheredParameters(parameters):
        left = [one for one in parameters if frameworks.missing(one)]
        if left and not state.partial_gather:
            raise ValueError(
                f"dorajit: {len(left)} of {len(parameters)} parameters were not gathered; the first "
                f"{frameworks.missing(left[0])}, or set PEFT_DORA_ALLOW_PARTIAL_GATHER=1 if nothing "
                "reads it")
        yield


def _sharded_units(owners):
    """The modules wrapped by FSDP1 whose parameters are not whole now, from the outside in."""
    wrapper = frameworks.fsdp1()
    if wrapper is None:
        return []
    units = {}
    for owner in owners:
        if isinstance(owner, torch.nn.Module):
            units.update((id(one), one) for one in owner.modules() if isinstance(one, wrapper))
    return [unit for unit in units.values() if _is_sharded(unit)]


def _is_sharded(unit):
    handle = getattr(unit, "_handle", None)
    return handle is not None and handle.needs_unshard()
