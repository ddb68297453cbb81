"""Counts calls that were left to PEFT, by reason."""

import warnings

reasons = {}


def note(reason):
    """Counts a call that was left to PEFT; warns once per reason."""
    reasons[reason] = reasons.get(reason, 0) + 1
    if reasons[reason] == 1:
        warnings.warn(f"dorajit.patch_peft: left to PEFT: {reason}", RuntimeWarning, stacklevel=5)
