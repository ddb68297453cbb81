"""Which methods of the installed PEFT can be replaced, decided by their signatures and not by the version."""

import inspect
import re

OLDEST = (0, 18)
NEWEST_TRIED = (0, 21)

# The signatures that a method may have. The first of each list is that of PEFT 0.18.
_FORWARD = [("self", "x", "lora_A", "lora_B", "scaling", "base_layer", "base_result"),
            ("self", "x", "lora_A", "lora_B", "scaling", "base_layer", "base_result", "adapter_name")]
_NORM = [("self", "weight", "lora_weight", "scaling"),
         ("self", "weight", "lora_weight", "scaling", "adapter_name")]
KNOWN = {
    "Linear.forward": [("self", "x", "args", "kwargs")],
    "DoraLinearLayer.forward": _FORWARD,
    "_DoraConvNdLayer.forward": _FORWARD,
    "DoraLinearVariant.forward": [("module", "active_adapter", "x", "result", "kwargs")],
    "_DoraConvNdVariant.forward": [("module", "active_adapter", "x", "result", "kwargs")],
    "DoraEmbeddingVariant.forward": [("module", "active_adapter", "x", "result", "kwargs")],
    "DoraLinearLayer.update_layer": [("self", "base_layer", "lora_A", "lora_B", "scaling",
                                      "place_on_cpu")],
    "DoraLinearLayer.get_weight_norm": _NORM,
    "_DoraConvNdLayer.get_weight_norm": _NORM,
    "BaseTuner._cast_adapter_dtype": [("self", "adapter_name", "autocast_adapter_dtype")],
}


def version(text):
    """(major, minor) of a version string, or None."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else None


def refusal(owner, name):
    """The reason why a method cannot be replaced, or None."""
    label = f"{owner.__name__}.{name}"
    method = vars(owner).get(name)
    if method is None:
        return f"PEFT has no {label}"
    function = getattr(method, "__func__", method)
    found = tuple(inspect.signature(function).parameters)
    if found not in KNOWN[label]:
        return f"{label} has unknown parameters: {', '.join(found)}"
    if not function.__module__.startswith("peft."):
        return f"{label} was replaced by {function.__module__}"
    return None
