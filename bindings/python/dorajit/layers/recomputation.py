"""The saved-tensor hooks of torch.utils.checkpoint, which runs a forward pass a second time in the backward pass."""

import weakref

import torch

_running = weakref.WeakKeyDictionary()  # pack hook of a checkpoint -> weak reference to a layer that ran inside it
# With a PyTorch that does not have this function, any pass may save tensors under unknown hooks.
top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: True)


def is_of_checkpoint(hooks):
    """Whether these saved-tensor hooks are those of a checkpoint, which stores no copies."""
    return isinstance(hooks, tuple) and getattr(hooks[0], "__module__", None) == "torch.utils.checkpoint"


def is_first_run(hooks):
    """Whether they are those of a checkpoint's first run, which notes shapes and types of saved tensors and drops
    them."""
    return is_of_checkpoint(hooks) and hooks[0].__qualname__.startswith("_checkpoint_hook.")


def note(layer):
    """Notes that a layer runs; called by layers that compute something else after Patch.undo."""
    hooks = top_hooks(False)
    if hooks is not None and is_of_checkpoint(hooks):
        _running[hooks[1]] = weakref.ref(layer)  # the graph keeps this hook alive


def awaiting():
    """Layers noted inside checkpoints whose second run may still come, one for each checkpoint."""
    return [layer for layer in (one() for one in list(_running.values())) if layer is not None]
