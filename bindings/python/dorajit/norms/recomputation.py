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


def is_only_pass():
    """Whether the present pass, which nothing observes, is neither the first nor the second run of a checkpoint."""
    # Checkpoints run a pass under saved-tensor hooks, or without a graph.
    return torch.is_grad_enabled() and top_hooks(False) is None and torch._C._current_graph_task_id() < 0


def norms(layer, operands, scale, compute):
    """compute(), or an earlier result of it: inside a backward pass that of the one forward pass before, inside
    dorajit.frozen_weights() the cached one.

    A first forward pass always computes; its result is kept only if the pass may be inside a checkpoint. The result is
    reused once, if the version counters are unchanged and the layer had no other such pass since, so that it
    cannot be the result of another pass.

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
    is_in_backward = torch._C._current_graph_task_id() >= 0
    is_saved_by_hooks = top_hooks(False) is not None
    may_be_checkpoint = is_saved_by_hooks or (layer.training and not torch.is_inference_mode_enabled())
    if not (is_in_backward or may_be_checkpoint):
        if _kept:
            with _lock:
                if layer in _kept:
                    _kept[layer] = Pass()  # the kept pass is then not the only one
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
    """A key that changes if the scale or an element may have changed. None if changes of an operand cannot be detected,
    and while a dispatch mode is active, which may record the operations of a call, as selective checkpointing does."""
    if torch._C._len_torch_dispatch_stack() or frameworks.writes_unseen(*operands):
        return None
    return weight_state.key(operands, scale)
