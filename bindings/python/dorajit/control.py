"""Switches: whether kernels are used at all, and how problems without a winner are tuned.

All of them hold for the whole process, as those of torch.backends do: the threads on which autograd
runs backward passes see what the thread that called forward sees.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager

from dorajit import _native

_TUNE_POLICIES = {"environment": 0, "first_use": 1, "off": 2}


class _State:
    """Read on every call."""

    __slots__ = ("enabled", "fused_backward", "forced", "partial_gather")

    def __init__(self):
        self.forced = False
        self.read_environment()

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        if name == "enabled":
            _native.allow_call_table(value)

    def read_environment(self):
        self.enabled = _flag("PEFT_DORA_FUSED")
        self.fused_backward = _flag("PEFT_DORA_FUSED_BACKWARD")
        self.partial_gather = _flag("PEFT_DORA_ALLOW_PARTIAL_GATHER", unset=False)


def _flag(name, unset=True):
    value = os.environ.get(name, "").strip().lower()
    if value in ("0", "false"):
        return False
    if value in ("1", "true"):
        return True
    if value:
        warnings.warn(f"environment variable {name} is {value!r}, which means nothing; set it to "
                      "1, true, 0 or false", RuntimeWarning, stacklevel=3)
    return unset


state = _State()


@contextlib.contextmanager
def _set(name, value):
    before = getattr(state, name)
    setattr(state, name, value)
    try:
        yield
    finally:
        setattr(state, name, before)


def disabled() -> AbstractContextManager[None]:
    """Context in which every call runs in plain PyTorch, as with PEFT_DORA_FUSED=0."""
    return _set("enabled", False)


def force_native() -> AbstractContextManager[None]:
    """Context in which a call that would run in plain PyTorch raises FallbackError instead.

    For tests and for finding out why a model does not run natively. It also sets aside
    PEFT_DORA_FUSED=0 and PEFT_DORA_FUSED_BACKWARD=0.
    """
    @contextlib.contextmanager
    def both():
        with _set("enabled", True), _set("fused_backward", True), _set("forced", True):
            yield
    return both()


@contextlib.contextmanager
def tuning(policy: str) -> Iterator[None]:
    """Context with another policy for problems that have not been tuned.

    Args:
        policy: "first_use": the first call of a problem tunes it; "off": nothing is tuned, winners
            that are known are used; "environment": what DORAJIT_TUNE says.

    Raises:
        ValueError: for another policy.
    """
    if policy not in _TUNE_POLICIES:
        raise ValueError(f"tuning: argument `policy` is {policy!r}; give one of "
                         f"{', '.join(map(repr, _TUNE_POLICIES))}")
    before = _native.exchange_tune_policy(_TUNE_POLICIES[policy])
    try:
        yield
    finally:
        _native.exchange_tune_policy(before)
