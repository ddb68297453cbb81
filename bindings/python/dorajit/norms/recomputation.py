"""What a forward pass made of the weights alone, norms or norms and gain, for when gradient checkpointing runs that
pass again in its backward."""

import weakref
from typing import Any, NamedTuple, Optional

import torch

from dorajit import fork_lock
from dorajit.norms import frozen, weight_state
from dorajit.operations import eligibility
from dorajit.distributed import frameworks

_lock = fork_lock.make()
_kept = weakref.WeakKeyDictionary()  # layer -> Pass
# Of a PyTorch that does not tell, any pass may be one inside a checkpoint.
_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: True)


class Pass(NamedTuple):
    """The only forward pass of a layer that a backward pass may run again and none has; `norms` is None if there
    were several."""

    key: Optional[tuple] = None
    norms: Any = None


def is_only_pass():
    """Whether no checkpoint can run, or have run, the pass at hand a second time; of one that nobody observes."""
    # Checkpoints run a pass under hooks for what it saves, or without a graph.
    return torch.is_grad_enabled() and _top_hooks(False) is None and torch._C._current_graph_task_id() < 0


def norms(layer, operands, scale, compute):
    """compute(), or inside a backward pass what it gave in the one forward pass before it, and inside
    dorajit.frozen_weights() what it gave before.

    A forward pass always computes, and what it gave is kept only if it may be one inside a checkpoint. It is taken
    again once, if nothing that PyTorch counts has changed and the layer had no other such pass since, so that it
    cannot be another's.

    Args:
        layer: the module whose norms these are.
        operands: the tensors that the norms are made of.
        scale: what else they depend on.
        compute: makes the norms, or whatever is made of these operands.
    """
    if eligibility.is_observed():
        return compute()
    kept = frozen.of(layer)
    if kept is not None:
        return kept.made(operands, scale, compute)
    if is_only_pass():
        return compute()
    is_in_backward = torch._C._current_graph_task_id() >= 0
    is_saved_by_hooks = _top_hooks(False) is not None
    if not (is_in_backward or is_saved_by_hooks or layer.training):
        with _lock:
            _kept[layer] = Pass()  # which is of several passes for those that come
        return compute()
    key = _key(operands, scale)
    if is_in_backward:
        with _lock:
            found = _kept.pop(layer, Pass())
        return found.norms if key is not None and found.key == key else compute()
    made = compute()
    with _lock:
        _kept[layer] = Pass(key, made) if key is not None and layer not in _kept else Pass()
    return made


def _key(operands, scale):
    """What differs if the scale or an element may: None for operands that do not tell, and while a dispatch mode is
    active, which may count the operations of a call, as selective checkpointing does."""
    if torch._C._len_torch_dispatch_stack() or frameworks.writes_unseen(*operands):
        return None
    return weight_state.key(operands, scale)
