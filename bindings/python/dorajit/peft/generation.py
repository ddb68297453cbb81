"""`generate` of transformers does not write weights, so layers compute their gains once per call of it."""

import sys

from dorajit.norms import frozen


def target():
    """{(class, method name): replacement}; empty if transformers is not loaded or has no such method."""
    mixin = _mixin()
    return {(mixin, "generate"): _generate} if "generate" in vars(mixin or object) else {}


def _generate(original, self, *args, **kwargs):
    with frozen.frozen_weights(self):
        return original(self, *args, **kwargs)


def _mixin():
    """transformers' GenerationMixin, if it is loaded; a model with `generate` has loaded it."""
    return getattr(sys.modules.get("transformers.generation.utils"), "GenerationMixin", None)
