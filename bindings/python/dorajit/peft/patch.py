"""Replaces methods of PEFT by those of dorajit.peft.layers, and restores them."""

import contextlib
import functools
import inspect
import re
import sys
import warnings
import weakref
from typing import Optional

import torch

from dorajit import control
from dorajit.layers import explain, modules, recomputation
from dorajit.norms import frozen
from dorajit.operations import eligibility

_lock = control.fork_lock()
_originals = {}  # (class, method name) -> (PEFT's method, the installed one)
_patches = []    # the active ones
_searched = weakref.WeakSet()  # models whose MLPs are found
_everywhere = 0  # the number of active patches of all layers; read in each call
_MARK = "_dorajit_patches"


class Patch:
    """The result of patch_peft(), which can be undone. As a context manager it is undone at the end of the block.

    Attributes:
        model: the patched model; None for all models.
        replaced: the replaced methods, such as "DoraLinearLayer.forward".
        refused: method -> the reason why it was not replaced.
    """

    def __init__(self, model, replaced, refused, marked, choices):
        self.model, self.replaced, self.refused = model, replaced, refused
        self._marked, self._choices = marked, choices

    @property
    def declined(self) -> dict[str, int]:
        """Reason -> number of calls in this process that were left to PEFT although the method was replaced."""
        return dict(explain.declined)

    def undo(self) -> None:
        """Reverts the patch. Other patches stay active. A second call does nothing. Call it after the backward passes of
        checkpoints that ran under the patch (torch.utils.checkpoint with use_reentrant=False)."""
        global _everywhere
        with _lock:
            if self not in _patches:
                return
            self._choices.close()
            if self.model is None:
                _everywhere -= 1
            for module in self._marked:
                left = vars(module).get(_MARK, 0) - 1
                if left > 0:
                    setattr(module, _MARK, left)
                else:
                    vars(module).pop(_MARK, None)
            _patches.remove(self)
            if not _patches:
                _searched.clear()
                for (owner, name), (static, installed) in list(_originals.items()):
                    if vars(owner).get(name) is installed:  # a later replacement stays, and may call the installed one
                        setattr(owner, name, static)
                        del _originals[owner, name]
        if not _everywhere and any(type(one).__module__ == "peft.tuners.lora.dora" and not _is_patched(one)
                                   for one in recomputation.awaiting()):
            warnings.warn("Patch.undo: a checkpoint ran layers under the patch, and its backward pass is still to come. "
                          "PyTorch then runs the checkpoint's forward pass again, in PEFT's own methods, which save other "
                          "tensors, and raises a CheckpointError. Undo the patch after the backward pass",
                          RuntimeWarning, stacklevel=2)

    def __enter__(self) -> "Patch":
        return self

    def __exit__(self, *_) -> None:
        self.undo()

    def __repr__(self):
        what = "all models" if self.model is None else f"a {type(self.model).__name__}"
        return f"<dorajit.peft.Patch of {what}: {len(self.replaced)} methods" + (">" if self in _patches else ", undone>")


def patch_peft(model: Optional[torch.nn.Module] = None, *, strict: bool = False, dropout: Optional[str] = None,
               low_rank_dtype: Optional[str] = None, mlp: Optional[bool] = None) -> Patch:
    """Makes PEFT's DoRA layers use dorajit. Results change only by rounding, checkpoints do not change. `generate` of
    transformers runs inside dorajit.frozen_weights(). Thread-safe.

    Args:
        model: patch only the DoRA layers that this model has now; None: all present and future layers.
        strict: raise an error instead of a warning if a method has to be left to PEFT.
        dropout, low_rank_dtype: values of dorajit.set_dropout() and set_low_rank_dtype(), which they override in the
            whole process until the patch is undone; None: as set there.
        mlp: whether gated MLPs of transformers run as one node, which takes less memory and time (docs/layers.md); overrides
            the environment variable DORAJIT_MLP, which is 1 unless set, in the whole process until the patch is undone.

    Returns:
        A Patch: `.undo()` reverts it, and so does the end of `with dorajit.patch_peft():`. Patches
        may be nested and repeated.

    Raises:
        ImportError: PEFT is not installed.
        TypeError: the model is not a torch.nn.Module.
        ValueError: the model has no DoRA layers; an unknown value of `dropout` or `low_rank_dtype`.
        RuntimeError: with `strict`, a method of this version of PEFT cannot be replaced.
    """
    global _everywhere
    try:
        import peft
    except ImportError as error:
        raise ImportError("patch_peft: PEFT is not installed here: pip install peft") from error
    if model is not None and not isinstance(model, torch.nn.Module):
        raise TypeError(f"patch_peft: argument `model` is a {type(model).__name__}; pass a "
                        "torch.nn.Module, or nothing for all models")
    chosen = {name: control.check_choice("patch_peft", name, name, value)
              for name, value in (("dropout", dropout), ("low_rank_dtype", low_rank_dtype)) if value is not None}
    if mlp is not None:
        chosen["joins_mlp"] = bool(mlp)
    targets, refused = _targets(peft)
    if refused:
        message = f"patch_peft: some methods of PEFT {peft.__version__} are not replaced: " + "; ".join(refused.values())
        if strict:
            raise RuntimeError(message + ". PEFT 0.18 to 0.21 is supported")
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    layers = [] if model is None or not targets else _layers_of(model)
    wholes = _wholes() if targets else {}  # methods of whole models
    kinds = tuple(kind for kind, _ in wholes)
    others = [] if model is None else [one for one in model.modules() if isinstance(one, kinds)]
    if layers and chosen.get("joins_mlp", control.state.joins_mlp):
        others += [one for one in model.modules() if _install_mlps([one])]
    with _lock:
        for (owner, name), replacement in {**targets, **wholes}.items():
            if (owner, name) not in _originals:
                _install(owner, name, replacement)
        if targets:
            _renew()
        if model is None:
            _everywhere += 1
        for module in layers + others:
            setattr(module, _MARK, vars(module).get(_MARK, 0) + 1)
        choices = contextlib.ExitStack()
        for name, value in chosen.items():
            choices.enter_context(control.state.switches[name].override(value, is_of_thread=False))
        patch = Patch(model, tuple(f"{owner.__name__}.{name}" for owner, name in targets), refused, layers + others, choices)
        _patches.append(patch)
    if layers:
        from dorajit.peft import magnitudes, report
        try:
            magnitudes.refine(model)
            report.warn_of_halves(model, stacklevel=3)
        except BaseException:
            patch.undo()
            raise
    return patch


def _find_mlps(model):
    """Called before each forward pass of a model."""
    if control.state.joins_mlp and not eligibility.is_compiling() and model not in _searched:
        _searched.add(model)
        _install_mlps(model.modules())


def _install_mlps(modules):
    """Replaces the forward of the classes of gated MLPs among these modules. True if there are any."""
    from dorajit.peft import gated_mlp
    kinds = gated_mlp.classes_of(modules)
    with _lock:
        for kind in kinds:
            if (kind, "forward") not in _originals:
                _install(kind, "forward", gated_mlp.forward)
    return bool(kinds)


def _targets(peft):
    """({(class, method): replacement}, {method: the reason why it is not replaced})."""
    version = re.match(r"(\d+)\.(\d+)", peft.__version__)
    if version is None or tuple(map(int, version.groups())) < (0, 18):
        return {}, {"peft": f"PEFT {peft.__version__} is not supported; 0.18 is the oldest supported version"}
    try:
        from peft.tuners.lora import dora, variants
        from peft.tuners.lora.layer import Embedding, Linear, _ConvNd
        from peft.tuners.tuners_utils import BaseTuner
        from dorajit.peft import layers, linear, magnitudes
        wanted = {
            (Linear, "forward"): linear.forward,
            (Embedding, "forward"): layers.module_forward,
            (_ConvNd, "forward"): layers.module_forward,
            (dora.DoraLinearLayer, "forward"): layers.linear_forward,
            (dora._DoraConvNdLayer, "forward"): layers.conv_forward,
            (variants.DoraLinearVariant, "forward"): layers.linear_variant_forward,
            (variants._DoraConvNdVariant, "forward"): layers.conv_variant_forward,
            (variants.DoraEmbeddingVariant, "forward"): layers.embedding_variant_forward,
            (dora.DoraLinearLayer, "update_layer"): _renewing(magnitudes.update_layer),
            (dora.DoraLinearLayer, "get_weight_norm"): magnitudes.weight_norm,
            (dora._DoraConvNdLayer, "get_weight_norm"): magnitudes.weight_norm,
            (BaseTuner, "_cast_adapter_dtype"): magnitudes.cast_adapter_dtype,
            **{(kind, "forward"): linear.forward for kind in linear.quantized_classes()},
        }
        for variant in (variants.DoraLinearVariant, variants.DoraEmbeddingVariant, variants._DoraConvNdVariant):
            wanted |= {(variant, "merge_safe"): magnitudes.merge, (variant, "merge_unsafe"): magnitudes.merge,
                       (variant, "unmerge"): magnitudes.unmerge}
    except (ImportError, AttributeError) as error:
        return {}, {"peft": f"its modules are not those of a supported version ({error})"}
    targets, refused = {}, {}
    for (owner, name), replacement in wanted.items():
        reason = None if (owner, name) in _originals else _refusal(owner, name, replacement)
        if reason is None:
            targets[owner, name] = replacement
        else:
            refused[f"{owner.__name__}.{name}"] = reason
    return targets, refused


def _wholes():
    from dorajit.peft import report
    from peft import PeftModel
    from peft.tuners.tuners_utils import BaseTuner
    # Models for a task call the tuner; others, PeftModel itself, call the base model.
    first_call = functools.partial(report.first_call, _find_mlps)
    # transformers' GenerationMixin; a model with `generate` has loaded it.
    mixin = getattr(sys.modules.get("transformers.generation.utils"), "GenerationMixin", object)
    generation = {(mixin, "generate"): _generate} if "generate" in vars(mixin) else {}
    return {**generation, (PeftModel, "forward"): first_call, (BaseTuner, "forward"): first_call}


def _generate(original, self, *args, **kwargs):
    """`generate` of transformers, which does not write weights: layers compute their gains once per call."""
    with frozen.frozen_weights(self):
        return original(self, *args, **kwargs)


def _renewing(replacement):
    """The replacement of a method that runs when a layer is created."""
    @functools.wraps(replacement)
    def method(*args, **kwargs):
        with _lock:
            if _patches:
                _renew()
        return replacement(*args, **kwargs)
    return method


def _renew():
    """Replaces the forward of PEFT's linear layers where it is an original: PEFT imports those over quantized base layers
    when it creates the first of them, and Unsloth may have replaced the replacement."""
    from dorajit.peft import linear
    for kind in (linear.Linear, *linear.quantized_classes()):
        _, installed = _originals.get((kind, "forward"), (None, None))
        if vars(kind).get("forward") is not installed and not _refusal(kind, "forward", linear.forward):
            _install(kind, "forward", linear.forward)


def _refusal(owner, name, replacement):
    """The reason why a method cannot be replaced, or None. It must have the parameters of its replacement, of which
    older versions of PEFT do not have the last, `adapter_name`."""
    label = f"{owner.__name__}.{name}"
    method = vars(owner).get(name)
    if method is None:
        return f"PEFT has no {label}"
    function = getattr(method, "__func__", method)
    found = list(inspect.signature(function).parameters)
    known = list(inspect.signature(replacement).parameters)[1:]  # without `original`
    if found != known and [*found, "adapter_name"] != known:
        return f"{label} has unknown parameters: {', '.join(found)}"
    where = modules.replaced_by(owner, name)
    if getattr(function, "__name__", None) == "unsloth_forward" and where.startswith(f"{owner.__name__}_peft_forward ("):
        return None  # Unsloth's copy of PEFT's method, which differs from it for adapters without a magnitude
    return where and f"{label} was replaced by {where}"


def _install(owner, name, replacement):
    static = inspect.getattr_static(owner, name)
    is_static = isinstance(static, staticmethod)
    original = static.__func__ if is_static else static

    subject = next(iter(inspect.signature(original).parameters))

    @functools.wraps(original)
    def method(*args, **kwargs):
        if _everywhere or _is_patched(args[0] if args else kwargs[subject]):
            return replacement(original, *args, **kwargs)
        return original(*args, **kwargs)

    # Detects a wrapper around the method: a wrapper that copies attributes is not the object stored here.
    method.as_installed = method
    installed = staticmethod(method) if is_static else method
    _originals[owner, name] = static, installed
    setattr(owner, name, installed)


def _is_patched(subject):
    """Whether this layer or model, or this module with DoRA layers, is patched by itself."""
    if _MARK in vars(subject):
        return True
    layers = getattr(subject, "lora_magnitude_vector", None)  # of a module with DoRA layers
    return layers is not None and any(hasattr(one, _MARK) for one in layers.values())  # through FSDP's wrapper


def _read(module):
    """How a module of PEFT runs, for dorajit.layers.explain; None for others and those that are not patched."""
    if not module._modules.get("lora_magnitude_vector") or not (_everywhere or _is_patched(module)):
        return None
    from dorajit.peft import report
    return report.of_module(module)


def _joined(module):
    """The children of a patched gated MLP that run as one node, for dorajit.layers.explain."""
    if (type(module), "forward") not in _originals or not (_everywhere or _is_patched(module)):
        return ()
    from dorajit.peft import gated_mlp
    return gated_mlp.joined(module)


explain.readers.append(_read)
explain.joiners.append(_joined)


def _layers_of(model):
    from peft.tuners.lora.dora import DoraLinearLayer
    layers = [module for module in model.modules() if isinstance(module, DoraLinearLayer)]
    if not layers:
        raise ValueError("patch_peft: argument `model` has no DoRA layers; pass a PEFT model whose "
                         "LoraConfig has use_dora=True, or no model to patch all future layers")
    return layers
