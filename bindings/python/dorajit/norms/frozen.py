"""Values that are cached until weights change, and scopes in which weights are not written, so that layers can cache norms
and gains."""

import contextlib
import weakref
from collections.abc import Iterator

import torch

from dorajit import _native, control
from dorajit.operations import eligibility

_lock = control.fork_lock()
_scopes = weakref.WeakKeyDictionary()  # layer -> Kept, for layers inside a scope
_num_scopes = 0  # each call of a layer asks for it, which is faster than for the length of _scopes


class Kept:
    """The cache of a layer until the last of its scopes ends."""

    def __init__(self):
        self.scopes = 0
        self._made = {}  # number of operands -> (key, operands, value)

    def made(self, operands, scale, compute):
        """compute(), or its earlier result for these tensors."""
        key = key_of(operands, scale)
        if key is None:
            return compute()
        found = self._made.get(len(operands))
        if found is None or found[0] != key:
            # A later pass may build a graph, which cannot save tensors made in inference mode.
            with torch.inference_mode(False), torch.no_grad():
                value = compute()
            # The operands are kept alive, so that their addresses are not reused.
            found = self._made[len(operands)] = key, operands, value
        return found[2]


@contextlib.contextmanager
def frozen_weights(model: torch.nn.Module) -> Iterator[None]:
    """Context in which the DoRA layers of a model compute their norms and gains once and cache them until its end.

    For inference in steps, such as generation: without it a step reads each weight once for its product and again
    for its norm. The caller promises that weights, factors and magnitudes are not written inside. Writes
    that PyTorch counts are detected anyway; writes through `.data` are not. `generate` of transformers is such
    a scope by itself in a model that patch_peft() has patched.

    Scopes may be nested, and entered by several threads. Nothing is cached under torch.compile and during CUDA graph
    capture.

    Args:
        model: a module that contains layers of dorajit.nn or patched DoRA layers of PEFT.

    Raises:
        TypeError: the model is not a torch.nn.Module.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"frozen_weights: argument `model` is a {type(model).__name__}; pass a torch.nn.Module")
    global _num_scopes
    layers = list(_layers_of(model))
    with _lock:
        _num_scopes += 1
        for layer in layers:
            _scopes.setdefault(layer, Kept()).scopes += 1
    try:
        yield
    finally:
        with _lock:
            _num_scopes -= 1
            for layer in layers:
                kept = _scopes[layer]
                kept.scopes -= 1
                if not kept.scopes:
                    del _scopes[layer]


def of(layer):
    """The Kept of the layer, or None outside of any scope."""
    return _scopes.get(layer) if _num_scopes else None


def made(kept, operands, scale, compute):
    """compute(), which depends only on the operands and `scale`; for the Kept of a scope that nothing observes the cached
    result for these."""
    return compute() if kept is None or eligibility.is_observed() else kept.made(operands, scale, compute)


def _layers_of(model):
    """The DoRA layers of a model: modules of dorajit.nn, which have a magnitude, and the DoRA layer of each adapter
    in modules of PEFT."""
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):  # its children are not in a dictionary
            continue
        if "lora_magnitude_vector" in module._parameters:
            yield module
        else:
            yield from getattr(module._modules.get("lora_magnitude_vector"), "_modules", {}).values()


def key_of(operands, scale):
    """A key that changes with the scale, the stream and each write to an operand that PyTorch counts. None if nothing
    may be cached: for tensors without a version, and during CUDA graph capture, because replays may use other weights. It
    contains addresses, which an allocator may reuse: callers keep the operands alive."""
    state = _native.tensor_state(*operands) or _slow_state(operands)
    first = operands[0]
    if state is None or (first.is_cuda and torch._C._cuda_isCurrentStreamCapturing()):
        return None
    return scale, torch._C._cuda_getCurrentRawStream(first.device.index) if first.is_cuda else 0, state


def _slow_state(operands):
    """The state of tensors of any type and class, such as quantized weights."""
    state = []
    for one in operands:
        if (one.is_inference() or torch._C._functorch.is_functorch_wrapped_tensor(one)
                or type(one).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
                or one.layout is not torch.strided):
            return None
        state += one._version, one.data_ptr(), one.dtype, one.device, one.shape, one.stride()
    return tuple(state)
