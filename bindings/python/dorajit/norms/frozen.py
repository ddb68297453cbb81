"""Scopes in which nobody writes weights, so that layers keep what they make of them alone: norms and gains."""

import contextlib
import weakref
from collections.abc import Iterator

import torch

from dorajit import fork_lock
from dorajit.norms import weight_state

_lock = fork_lock.make()
_scopes = weakref.WeakKeyDictionary()  # layer -> Kept, for layers inside a scope


class Kept:
    """What a layer keeps until the last of its scopes is left."""

    def __init__(self):
        self.scopes = 0
        self._made = {}  # number of operands -> (key, operands, value)

    def made(self, operands, scale, compute):
        """compute(), or what it gave for these tensors before."""
        key = weight_state.key(operands, scale)
        if key is None:
            return compute()
        found = self._made.get(len(operands))
        if found is None or found[0] != key:
            # The operands are held, so that their memory stays theirs.
            found = self._made[len(operands)] = key, operands, compute()
        return found[2]


@contextlib.contextmanager
def frozen_weights(model: torch.nn.Module) -> Iterator[None]:
    """Inside, the DoRA layers of a model make their norms and gains once; left, those are forgotten.

    For inference step by step, as generation is: a step that reads each weight once for its product would read it
    again for its norm. The caller promises that weights, factors and magnitudes are not written meanwhile. Writes
    that PyTorch counts are noticed all the same; writes through `.data` are not. `generate` of transformers is such
    a scope by itself in a model that patch_peft() patched.

    Scopes may be nested, and entered by several threads. Under torch.compile and while a CUDA graph is captured
    nothing is kept.

    Args:
        model: a module with layers of dorajit.nn or patched DoRA layers of PEFT among its modules.

    Raises:
        TypeError: the model is no module.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"frozen_weights: argument `model` is a {type(model).__name__}; pass a torch.nn.Module")
    layers = list(_layers_of(model))
    with _lock:
        for layer in layers:
            _scopes.setdefault(layer, Kept()).scopes += 1
    try:
        yield
    finally:
        with _lock:
            for layer in layers:
                kept = _scopes[layer]
                kept.scopes -= 1
                if not kept.scopes:
                    del _scopes[layer]


def of(layer):
    """What the layer keeps, or None outside of any scope."""
    return _scopes.get(layer) if _scopes else None


def _layers_of(model):
    """Those of dorajit.nn have a magnitude, modules of PEFT a layer for each adapter's."""
    for module in model.modules():
        if "lora_magnitude_vector" in module._parameters:
            yield module
        else:
            yield from getattr(module._modules.get("lora_magnitude_vector"), "_modules", {}).values()
