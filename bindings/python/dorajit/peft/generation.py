"""`generate` of transformers, which writes no weights: layers make their gains once a call."""

import sys

from dorajit.norms import frozen


def target():
    """The method and what replaces it; nothing where transformers has no such, or is not here."""
    mixin = _mixin()
    return {(mixin, "generate"): _generate} if "generate" in vars(mixin or object) else {}


def modules_of(model):
    """Those of a model that generate."""
    mixin = _mixin()
    return [] if mixin is None else [one for one in model.modules() if isinstance(one, mixin)]


def _generate(original, self, *args, **kwargs):
    with frozen.frozen_weights(self):
        return original(self, *args, **kwargs)


def _mixin():
    """transformers' class, which a model that can generate has imported."""
    return getattr(sys.modules.get("transformers.generation.utils"), "GenerationMixin", None)
