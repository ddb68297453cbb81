"""Which methods of the installed PEFT can be replaced, decided by their signatures and not by the version."""

import inspect
import re

OLDEST = (0, 18)


def version(text):
    """(major, minor) of a version string, or None."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else None


def refusal(owner, name, replacement):
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
    if not function.__module__.startswith("peft."):
        return f"{label} was replaced by {function.__module__}"
    return None
