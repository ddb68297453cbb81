"""Reuse of norms and gains when gradient checkpointing runs a forward pass a second time, in the backward pass."""

import weakref
from typing import Any, NamedTuple, Optional

import torch

from dorajit import fork_lock
from dorajit.norms import frozen, weight_state
from dorajit.operations import eligibility
from dorajit.distributed import frameworks

_lock = fork_lock.make()
_kept = weakref.WeakKeyDictionary()  # layer -> Pass
# With a PyTorch that does not have this function, any pass may be inside a checkpoint and save tensors under hooks.
top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: True)


def is_of_checkpoint(hooks):
    """Whether these saved-tensor hooks are those of a checkpoint, which stores no copies."""
    return isinstance(hooks, tuple) and getattr(hooks[0], "__module__", None) == "torch.utils.checkpoint"


class Pass(NamedTuple):
    """The only forward pass of a layer that a backward pass may still run again. The default stands for several such
    passes, of which none is reused."""

    key: Optional[tuple] = None
    norms: Any = None
    hook: Optional[weakref.ref] = None  # of the checkpoint around the pass; it lives as long as the graph


def awaiting():
    """The layers with a forward pass inside a checkpoint that a backward pass may still run again."""
    with _lock:
        return [layer for layer, one in _kept.items() if one.hook is not None and one.hook() is not None]


def _hook():
    hooks = top_hooks(False)
    return weakref.ref(hooks[1]) if is_of_checkpoint(hooks) else None


def is_only_pass():
    """Whether the present pass, which nothing observes, is neither the first nor the second run of a checkpoint."""
    # Checkpoints run a pass under saved-tensor hooks, or without a graph.
    return torch.is_grad_enabled() and top_hooks(False) is None and torch._C._current_graph_task_id() < 0


def norms(layer, operands, scale, compute):
    """compute(), or an earlier result of it: inside a backward pass that of the one forward pass before, inside
    dorajit.frozen_weights() the cached one.

    A first forward pass always computes; its result is kept only if the pass may be inside a checkpoint. The result is
    reused once, if the version counters are unchanged and the layer had no other such pass since, so that it
    cannot be the result of another pass. Like autograd, it does not see writes through `.data`: only reading the weights,
    which takes as long as their norms, would show them.

    Args:
        layer: the module to which the norms belong.
        operands: the tensors from which the norms are computed.
        scale: other values on which they depend.
        compute: () -> the norms, or another value that depends only on operands and scale.
    """
    if eligibility.is_observed():
        return compute()
    kept = frozen.of(layer)
    if kept is not None:
        return kept.made(operands, scale, compute)
    if is_only_pass():
        return compute()
    made, key = begin(layer, operands, scale)
    if made is None:
        made = compute()
        if key is not None:
            keep(layer, key, made)
    return made


def begin(layer, operands, scale):
    """(norms, key) of a pass that nothing observes and that may be one of a checkpoint: the norms of the pass before if
    they are to be reused, else None; and the key for `keep`, or None if nothing is to be kept."""
    is_in_backward = torch._C._current_graph_task_id() >= 0
    may_be_checkpoint = (is_in_backward or top_hooks(False) is not None
                         or (layer.training and not torch.is_inference_mode_enabled()))
    if not may_be_checkpoint and layer not in _kept:
        return None, None
    key = _key(operands, scale) if may_be_checkpoint else None
    with _lock:
        if is_in_backward:
            found = _kept.pop(layer, None)
            return (found.norms if found is not None and key is not None and found.key == key else None), None
        if key is not None and layer not in _kept:
            return None, key
        _kept[layer] = Pass(hook=_hook())  # there are several passes, or one whose norms may not be reused
    return None, None


def keep(layer, key, made):
    """Keeps the norms of a pass for which `begin` has returned this key."""
    with _lock:
        _kept[layer] = Pass(key, made, _hook()) if layer not in _kept else Pass(hook=_hook())


def _key(operands, scale):
    """A key that changes if the scale or an element may have changed. None if changes of an operand cannot be detected,
    and while a dispatch mode is active, which may record the operations of a call, as selective checkpointing does."""
    if torch._C._len_torch_dispatch_stack() or frameworks.writes_unseen(*operands):
        return None
    return weight_state.key(operands, scale)
