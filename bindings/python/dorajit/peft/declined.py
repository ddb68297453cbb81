"""What was left to PEFT, and why."""

import inspect
import warnings

reasons = {}


def note(reason):
    """Counts a call that PEFT itself served; warns the first time of each reason."""
    reasons[reason] = reasons.get(reason, 0) + 1
    if reasons[reason] == 1:
        warnings.warn(f"dorajit.patch_peft: left to PEFT: {reason}", RuntimeWarning, stacklevel=5)


def parameters(function):
    """Names of a function's parameters."""
    return inspect.signature(function).parameters
