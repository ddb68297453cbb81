"""Putting the methods of dorajit.peft.layers in the place of PEFT's, and back."""

import functools
import inspect
import warnings
from typing import Optional

import torch

from dorajit import fork_lock
from dorajit.peft import declined, gates, generation

_lock = fork_lock.make()
_originals = {}  # (class, method name) -> what PEFT has there
_patches = []    # those in force
_MARK = "_dorajit_patches"


class _Switch:
    """Whether all layers are patched; read in each call."""

    everywhere = 0


class Patch:
    """What patch_peft() did, to be undone. Also a context manager, which undoes it on leaving.

    Attributes:
        model: the model that was patched; None for all of them.
        replaced: the methods that run natively, as "DoraLinearLayer.forward".
        refused: method -> why it was left as it is.
    """

    def __init__(self, model, replaced, refused, marked):
        self.model, self.replaced, self.refused = model, replaced, refused
        self._marked, self._undone = marked, False

    @property
    def declined(self) -> dict[str, int]:
        """Why calls of this process were left to PEFT, and how many, though methods were replaced."""
        return dict(declined.reasons)

    def undo(self) -> None:
        """Takes the patch back. Others that are in force stay so. Again: nothing."""
        with _lock:
            if self._undone:
                return
            self._undone = True
            if self.model is None:
                _Switch.everywhere -= 1
            for module in self._marked:
                left = vars(module).get(_MARK, 0) - 1
                if left > 0:
                    setattr(module, _MARK, left)
                else:
                    vars(module).pop(_MARK, None)
            _patches.remove(self)
            if not _patches:
                _restore()

    def __enter__(self) -> "Patch":
        return self

    def __exit__(self, *_) -> None:
        self.undo()

    def __repr__(self):
        what = "all models" if self.model is None else f"a {type(self.model).__name__}"
        return f"<dorajit.peft.Patch of {what}: {len(self.replaced)} methods" + (
            ", undone>" if self._undone else ">")


def patch_peft(model: Optional[torch.nn.Module] = None, *, strict: bool = False) -> Patch:
    """Makes PEFT's DoRA layers run by dorajit. Changes no numbers beyond rounding, and no checkpoint. `generate` of
    transformers runs inside dorajit.frozen_weights().

    Args:
        model: patch the DoRA layers that this model has now; None: all layers there are or will be.
        strict: raise for what would be left to PEFT, instead of warning.

    Returns:
        A Patch: `.undo()` takes it back, and so does the end of `with dorajit.patch_peft():`. Patches
        may be nested and repeated.

    Raises:
        ImportError: PEFT is not installed.
        TypeError: the model is no module.
        ValueError: the model has no DoRA layers.
        RuntimeError: strict, and this version of PEFT is not one that can be patched whole.
    """
    try:
        import peft
    except ImportError as error:
        raise ImportError("patch_peft: PEFT is not installed here: pip install peft") from error
    if model is not None and not isinstance(model, torch.nn.Module):
        raise TypeError(f"patch_peft: argument `model` is a {type(model).__name__}; pass a "
                        "torch.nn.Module, or nothing for all models")
    targets, refused = _targets(peft)
    if refused:
        message = (f"patch_peft: of PEFT {peft.__version__}, this is left as it is: "
                   + "; ".join(refused.values()))
        if strict:
            raise RuntimeError(message + ". PEFT 0.18 to 0.21 is known here")
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    layers = [] if model is None or not targets else _layers_of(model)
    generate = generation.target() if targets else {}
    generating = [] if model is None else generation.modules_of(model)
    with _lock:
        for (owner, name), replacement in {**targets, **generate}.items():
            if (owner, name) not in _originals:
                _install(owner, name, replacement)
        if model is None:
            _Switch.everywhere += 1
        for module in layers + generating:
            setattr(module, _MARK, vars(module).get(_MARK, 0) + 1)
        patch = Patch(model, tuple(f"{owner.__name__}.{name}" for owner, name in targets), refused,
                      layers + generating)
        _patches.append(patch)
    if layers:
        from dorajit.peft import refine
        refine.magnitudes(model)
    return patch


def _targets(peft):
    """(class, method) -> replacement, and method -> why it is not among them."""
    found = gates.version(peft.__version__)
    if found is None or found < gates.OLDEST:
        return {}, {"peft": f"PEFT {peft.__version__} is not known; 0.18 is the oldest that is"}
    try:
        from peft.tuners.lora import dora, variants
        from peft.tuners.lora.layer import Linear
        from peft.tuners.tuners_utils import BaseTuner
        from dorajit.peft import layers, linear, magnitudes
        wanted = {
            (Linear, "forward"): linear.forward,
            (dora.DoraLinearLayer, "forward"): layers.linear_forward,
            (dora._DoraConvNdLayer, "forward"): layers.conv_forward,
            (variants.DoraLinearVariant, "forward"): layers.linear_variant_forward,
            (variants._DoraConvNdVariant, "forward"): layers.conv_variant_forward,
            (variants.DoraEmbeddingVariant, "forward"): layers.embedding_variant_forward,
            (dora.DoraLinearLayer, "update_layer"): magnitudes.update_layer,
            (dora.DoraLinearLayer, "get_weight_norm"): layers.linear_norm,
            (dora._DoraConvNdLayer, "get_weight_norm"): layers.conv_norm,
            (BaseTuner, "_cast_adapter_dtype"): magnitudes.cast_adapter_dtype,
        }
    except (ImportError, AttributeError) as error:
        return {}, {"peft": f"it is not laid out as known ({error})"}
    targets, refused = {}, {}
    for (owner, name), replacement in wanted.items():
        reason = None if (owner, name) in _originals else gates.refusal(owner, name)
        if reason is None:
            targets[owner, name] = replacement
        else:
            refused[f"{owner.__name__}.{name}"] = reason
    return targets, refused


def _install(owner, name, replacement):
    static = inspect.getattr_static(owner, name)
    is_static = isinstance(static, staticmethod)
    original = static.__func__ if is_static else static

    subject = next(iter(inspect.signature(original).parameters))

    @functools.wraps(original)
    def method(*args, **kwargs):
        if _is_patched(args[0] if args else kwargs[subject]):
            return replacement(original, *args, **kwargs)
        return original(*args, **kwargs)

    method.as_installed = method  # which a wrapper around it that copies its attributes is not
    _originals[owner, name] = static
    setattr(owner, name, staticmethod(method) if is_static else method)


def _is_patched(subject):
    """Whether a method of this layer or model, or one of this module for an adapter, is to be replaced."""
    if _Switch.everywhere:
        return True
    if _MARK in vars(subject):
        return True
    layers = getattr(subject, "lora_magnitude_vector", None)  # of a module with DoRA layers
    return layers is not None and any(hasattr(one, _MARK) for one in layers.values())  # through FSDP's wrapper


def _restore():
    for (owner, name), static in _originals.items():
        setattr(owner, name, static)
    _originals.clear()


def _layers_of(model):
    from peft.tuners.lora.dora import DoraLinearLayer
    layers = [module for module in model.modules() if isinstance(module, DoraLinearLayer)]
    if not layers:
        raise ValueError("patch_peft: argument `model` has no DoRA layers; pass a PEFT model whose "
                         "LoraConfig has use_dora=True, or no model to patch those to come")
    return layers
