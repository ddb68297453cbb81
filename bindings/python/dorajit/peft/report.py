"""What users of a patched model are told: how its layers run, before the first call; and that magnitudes of 16 bits hardly
move."""

import logging
import os
import sys
import warnings
import weakref

import torch
from peft.tuners.lora import dora

from dorajit.layers import explain
from dorajit.layers.explain import Dispatch
from dorajit.operations import eligibility, recording
from dorajit.operations.gain import HALVES
from dorajit.peft import layers, linear

_log = logging.getLogger("dorajit")
_seen = weakref.WeakSet()  # models that were called
_has_warned = False


def of_module(module):
    """(Dispatch, magnitudes) of a patched module of PEFT, for dorajit.layers.explain."""
    of_adapters = module.lora_magnitude_vector
    names = [one for one in module.active_adapters if one in of_adapters]
    magnitudes = [layer.weight for layer in of_adapters.values()]
    if not names and not (module.disable_adapters or module.merged):
        if any(one in module.lora_A or one in module.lora_embedding_A for one in module.active_adapters):
            return Dispatch(explain.PEFT, "the active adapters are not DoRA"), magnitudes
    if module.disable_adapters or module.merged or not names:
        return Dispatch(explain.BASE, "the adapter is merged, disabled or not active"), magnitudes
    kind = type(module)
    made = explain.of_parts(module, linear.parts(module, magnitudes[0]) if layers.is_installed(kind.forward)
                            else f"PEFT's {kind.__name__} has no node, or its forward is wrapped")
    if made.path == explain.COMPOSED:
        reason = next(filter(None, (_why_declined(module, one) for one in names)), None)
        made = made if reason is None else Dispatch(explain.PEFT, reason)
    return made, magnitudes


def _why_declined(module, name):
    layer, scaling, base_layer = module.lora_magnitude_vector[name], module.scaling[name], module.get_base_layer()
    if name in module.lora_embedding_A:
        return layers.why_declined_embedding(layer, module.lora_embedding_A[name], module.lora_embedding_B[name], scaling,
                                             base_layer)
    kind = layers._Conv if isinstance(layer, dora._DoraConvNdLayer) else torch.nn.Linear
    return layers.why_declined(kind, layer, None, module.lora_A[name], module.lora_B[name], scaling, base_layer, None)


def _say(level, message):
    """To the logger, or, where DORAJIT_LOG asks for what the program's logging does not show, to standard error."""
    if os.environ.get("DORAJIT_LOG", "").lower() in ("info", "debug") and not (
            _log.isEnabledFor(level) and _log.hasHandlers()):
        print(message, file=sys.stderr)
    else:
        _log.log(level, message)


def first_call(prepare, original, self, *args, **kwargs):
    """PeftModel.forward and BaseTuner.forward: one line about how the layers of a model run, before its first call. A tracer
    would record the questions; DataParallel makes replicas for each call. `prepare` gets the model before each call."""
    prepare(self)
    if not eligibility.is_observed() and self not in _seen and "_is_replica" not in self.__dict__:
        _seen.add(self)
        found = explain.of_model(self)
        if found:
            is_improvable = any(one.path != explain.NODE and "; " in one.reason for one in found.values())
            _say(logging.WARNING if is_improvable else logging.INFO,
                 f"dorajit: {found.summary()}; dorajit.explain_dispatch(model) tells why")
        warn_of_halves(self)
    return original(self, *args, **kwargs)


def warn_of_halves(model, stacklevel=4):
    """Warns once in a process of trained magnitudes with 16 bits; not in a recording, which trains nothing."""
    global _has_warned
    if _has_warned or recording.is_running():
        return
    found = [one.weight for one in model.modules() if isinstance(one, dora.DoraLinearLayer)]
    halves = [one for one in found if one is not None and one.requires_grad and one.dtype in HALVES]
    if halves:
        _has_warned = True
        warnings.warn(
            f"dorajit.patch_peft: {len(halves)} of {len(found)} magnitudes are trained in {halves[0].dtype}, whose "
            f"numbers near 1 are {torch.finfo(halves[0].dtype).eps:g} apart: updates of an optimizer without float32 "
            "copies round to nothing. Keep them in float32: call get_peft_model with autocast_adapter_dtype=True, or "
            "run, before the optimizer is made, `for name, one in model.named_parameters(): "
            "if 'lora_magnitude_vector' in name: one.data = one.data.float()` (docs/training.md)",
            RuntimeWarning, stacklevel=stacklevel)
