"""The saved-tensor hooks of torch.utils.checkpoint, which runs a forward pass a second time in the backward pass."""

import weakref

import torch

from dorajit.norms import frozen

_norms = weakref.WeakKeyDictionary()  # checkpoint -> id of A -> Norms of its first run, or None for a layer called twice
_running = weakref.WeakKeyDictionary()  # pack hook of a checkpoint -> weak reference to a layer that ran inside it
# With a PyTorch that does not have this function, any pass may save tensors under unknown hooks.
top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: True)


def is_of_checkpoint(hooks):
    """Whether these saved-tensor hooks are those of a checkpoint, which stores no copies."""
    return isinstance(hooks, tuple) and getattr(hooks[0], "__module__", None) == "torch.utils.checkpoint"


def is_first_run(hooks):
    """Whether they are those of a checkpoint's first run, which notes shapes and types of saved tensors and drops them."""
    return is_of_checkpoint(hooks) and hooks[0].__qualname__.startswith("_checkpoint_hook.")


class Norms:
    """The divisor and the gain that a layer computes in a checkpoint's first run, for the second one."""

    __slots__ = "operands", "key", "divisor", "gain"

    def __init__(self, operands, key):
        self.operands, self.key = operands, key  # alive, so that their addresses are not reused
        self.divisor = self.gain = None


def share_norms(hooks, is_first, call, lora_A, lora_B):
    """Lets the two runs of a checkpoint compute the norms of a call once. In the first run the result is a Norms, for
    keep_norms after the forward pass; the second run takes them, unless an operand was written since, as far as
    PyTorch counts writes."""
    if call.of_norm is None or not is_of_checkpoint(hooks):
        return None
    checkpoint = _checkpoint_of(hooks)
    operands = call.of_norm[0] if call.base is None else call.base.stored, lora_A, lora_B, call.magnitude
    key = frozen.key_of(operands, (call.scale, call.a.dtype))
    if checkpoint is None or key is None:
        return None
    if is_first:
        of_layers = _norms.setdefault(checkpoint, {})
        made = None if id(lora_A) in of_layers else Norms(operands, key)
        of_layers[id(lora_A)] = made
        return made
    found = _norms.get(checkpoint, {}).get(id(lora_A))
    if found is not None and found.key == key:
        call.divisor, call.gain = found.divisor, found.gain
    return None


def keep_norms(norms, call):
    """Gives the result of share_norms what the forward pass computed."""
    if norms is not None:
        norms.divisor, norms.gain = call.divisor, call.gain


def _checkpoint_of(hooks):
    """What PyTorch keeps of a checkpoint for both runs; None if this version of PyTorch hides it."""
    pack = getattr(hooks[0], "__wrapped__", hooks[0])
    code = getattr(pack, "__code__", None)
    if code is None:
        return None
    for name, cell in zip(code.co_freevars, pack.__closure__ or ()):
        if name == "frame":
            return cell.cell_contents
        if name == "target_frame_ref":
            return cell.cell_contents()
    return None


def note(layer):
    """Notes that a layer runs; called by layers that compute something else after Patch.undo."""
    hooks = top_hooks(False)
    if hooks is not None and is_of_checkpoint(hooks):
        _running[hooks[1]] = weakref.ref(layer)  # the graph keeps this hook alive


def awaiting():
    """Layers noted inside checkpoints whose second run may still come, one for each checkpoint."""
    return [layer for layer in (one() for one in list(_running.values())) if layer is not None]
