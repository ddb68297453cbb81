"""Settings: whether kernels are used, the memory of temporaries, and how problems without a winner are tuned.

All settings apply to the whole process, like those of torch.backends, because autograd runs backward passes
on other threads than the one that called forward.
"""

import contextlib
import functools
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager

from dorajit import _native

# Computations with different results between which the user chooses; the first one is the default. Each has an attribute
# of `state`, an environment variable, and a parameter of patch_peft of this name.
CHOICES = {"dropout": ("peft", "low_rank"), "low_rank_dtype": ("adapter", "base")}
_FLAG = {"1": True, "true": True, "0": False, "false": False}
# Attribute of `state` -> (environment variable, its texts and their values, the value without it).
_SETTINGS = {"enabled": ("PEFT_DORA_FUSED", _FLAG, True),
             "fused_backward": ("PEFT_DORA_FUSED_BACKWARD", _FLAG, True),
             "partial_gather": ("PEFT_DORA_ALLOW_PARTIAL_GATHER", _FLAG, False),
             "joins_mlp": ("DORAJIT_MLP", _FLAG, True),
             **{name: (f"DORAJIT_{name.upper()}", dict(zip(values, values)), values[0])
                for name, values in CHOICES.items()}}
_TUNE_POLICIES = {"environment": 0, "first_use": 1, "off": 2}
_DEFAULT_MB, _VALID_MB = 256, range(16, 65537)
_NORM, _FORWARD = "PEFT_DORA_NORM_CHUNK_MB", "PEFT_DORA_FWD_CHUNK_MB"
_thresholds = {}  # variable -> MB; read at first use, and again after invalidate_environment()


def fork_lock(kind=threading.Lock):
    """A lock of this kind that is released in a forked process, where the thread that held it may not exist."""
    made = kind()
    # The method that Python's standard library uses for its own locks; there is no public one.
    os.register_at_fork(after_in_child=made._at_fork_reinit)
    return made


class Switch:
    """A setting of the process that contexts override. Where contexts of several threads overlap, the one that
    was entered last and not yet left applies. A forked process keeps the contexts of the thread that forked,
    the only thread that continues in it. Thread-safe."""

    def __init__(self, apply, value=None):
        self._apply = apply     # called with each new value
        self._value = value     # the value outside of contexts
        self._overrides = []    # (value, thread), in the order of entering
        self._lock = fork_lock(threading.RLock)
        os.register_at_fork(after_in_child=self._forked)

    def set(self, value):
        with self._lock:
            self._value = value
            self._hold()

    @contextlib.contextmanager
    def override(self, value, is_of_thread=True):
        mine = value, threading.get_ident() if is_of_thread else None  # None: a forked process keeps it
        with self._lock:
            self._overrides.append(mine)
            self._hold()
        try:
            yield
        finally:
            with self._lock:
                self._overrides = [one for one in self._overrides if one is not mine]  # values may be equal
                self._hold()

    def _forked(self):
        self._overrides = [one for one in self._overrides if one[1] in (None, threading.get_ident())]
        self._hold()

    def _hold(self):
        self._apply(self._overrides[-1][0] if self._overrides else self._value)


class _State:
    """The settings, as attributes that are read on every call. "forced" is set by force_native() alone."""

    __slots__ = *_SETTINGS, "forced", "switches"

    def __init__(self):
        self.switches = {name: Switch(functools.partial(setattr, self, name)) for name in (*_SETTINGS, "forced")}
        self.switches["forced"].set(False)
        self.read_environment()

    def read_environment(self):
        for name, (variable, values, unset) in _SETTINGS.items():
            text = os.environ.get(variable, "").strip().lower()
            if text and text not in values:
                warnings.warn(f"environment variable {variable} is {text!r}, which is not a valid value; set it to "
                              f"{' or '.join(values)}", RuntimeWarning, stacklevel=2)
            self.switches[name].set(values.get(text, unset))


state = _State()
_tune_policy = Switch(_native.exchange_tune_policy, _TUNE_POLICIES["environment"])


def disabled() -> AbstractContextManager[None]:
    """Context in which every call runs in plain PyTorch, as with PEFT_DORA_FUSED=0."""
    return state.switches["enabled"].override(False)


@contextlib.contextmanager
def force_native() -> Iterator[None]:
    """Context in which a call that would run in plain PyTorch raises FallbackError instead.

    For tests, and to find out why a model does not run natively. It overrides
    PEFT_DORA_FUSED=0 and PEFT_DORA_FUSED_BACKWARD=0.
    """
    with contextlib.ExitStack() as switches:
        for name in ("enabled", "fused_backward", "forced"):
            switches.enter_context(state.switches[name].override(True))
        yield


def set_dropout(meaning: str) -> None:
    """What dropout in front of an adapter drops, from the next forward pass on. With x~ = dropout(x):

    "peft", the default and PEFT's meaning: out = x W^T + (g - 1) x~ W^T + g s B A x~. The base layer's share of the
    change is dropped, too, which takes a second base product in each direction.

    "low_rank": out = g (x W^T + s B A x~), the meaning that adapters without a magnitude have. It has the same
    expectation, less noise, and the cost of a layer without dropout and of the mask. Outputs differ from PEFT's
    (docs/layers.md, "Dropout").

    It applies to all layers, linear and convolutional. DORAJIT_DROPOUT is the same, and is read again by
    dorajit.invalidate_environment().

    Raises:
        ValueError: the meaning is none of these.
    """
    state.switches["dropout"].set(check_choice("set_dropout", "meaning", "dropout", meaning))


def set_low_rank_dtype(which: str) -> None:
    """The element type of the low-rank products where the adapter has another one than the base product and autocast is
    off, from the next forward pass on. PEFT keeps adapters in float32 over a 16-bit base.

    "adapter", the default and PEFT's: x is cast to the type of the factors, and products and their sum with the base
    result have that type.

    "base": what autocast would compute. Each factor is cast once to the 16-bit type of the base product. Gradients of
    factors and magnitudes keep their float32.

    It applies to all layers. DORAJIT_LOW_RANK_DTYPE is the same, and is read again by dorajit.invalidate_environment()
    (docs/layers.md, "Element types").

    Raises:
        ValueError: `which` is none of these.
    """
    state.switches["low_rank_dtype"].set(check_choice("set_low_rank_dtype", "which", "low_rank_dtype", which))


def check_choice(function, argument, name, value):
    """The value, if it is one of CHOICES[name]."""
    if value not in CHOICES[name]:
        raise ValueError(f"{function}: argument `{argument}` is {value!r}; give one of "
                         f"{', '.join(map(repr, CHOICES[name]))}")
    return value


def tuning(policy: str) -> AbstractContextManager[None]:
    """Context with another policy for problems that have not been tuned.

    Args:
        policy: "first_use": the first call of a problem tunes it; "off": nothing is tuned, known winners
            are used; "environment": the policy of DORAJIT_TUNE.

    Each policy has its own engine, which reads the environment at its first call and loads its own
    kernels: warm up inside the context what a CUDA graph launches inside it.

    Raises:
        ValueError: the policy is none of these.
    """
    if not isinstance(policy, str) or policy not in _TUNE_POLICIES:
        raise ValueError(f"tuning: argument `policy` is {policy!r}; give one of {', '.join(map(repr, _TUNE_POLICIES))}")
    return _tune_policy.override(_TUNE_POLICIES[policy])


def _threshold(name):
    mb = _thresholds.get(name)
    if mb is None:
        text = os.environ.get(name, "").strip() or str(_DEFAULT_MB)
        mb = int(text) if text.isdecimal() else None
        if mb not in _VALID_MB:
            warnings.warn(f"environment variable {name} is {text!r}; give a whole number of MB from {_VALID_MB[0]} to "
                          f"{_VALID_MB[-1]}. {_DEFAULT_MB} is used", RuntimeWarning, stacklevel=3)
            mb = _DEFAULT_MB
        mb = _thresholds.setdefault(name, mb)  # another thread may have called a setter
    return mb


def _set_threshold(function, name, mb):
    if type(mb) is not int or mb not in _VALID_MB:
        raise ValueError(f"{function}: argument `mb` is {mb!r}; give a whole number from {_VALID_MB[0]} to {_VALID_MB[-1]}")
    os.environ[name] = str(mb)
    _thresholds[name] = mb


def set_dora_norm_threshold_mb(mb: int) -> None:
    """Sets PEFT_DORA_NORM_CHUNK_MB, the memory for temporaries of one weight norm, to `mb`, a whole number of MB (2^20
    bytes). Raises ValueError if it is not from 16 to 65536."""
    _set_threshold("set_dora_norm_threshold_mb", _NORM, mb)


def get_dora_norm_threshold_mb() -> int:
    """The memory for temporaries of one weight norm, in MB (2^20 bytes); 256 unless set."""
    return _threshold(_NORM)


def get_dora_norm_threshold_bytes() -> int:
    """get_dora_norm_threshold_mb in bytes."""
    return get_dora_norm_threshold_mb() << 20


def set_dora_forward_threshold_mb(mb: int) -> None:
    """Sets PEFT_DORA_FWD_CHUNK_MB, the memory of one slice of the base result under dropout, to `mb`, a whole number of MB
    (2^20 bytes). Raises ValueError if it is not from 16 to 65536."""
    _set_threshold("set_dora_forward_threshold_mb", _FORWARD, mb)


def get_dora_forward_threshold_mb() -> int:
    """The memory of one slice of the base result under dropout, in MB (2^20 bytes); 256 unless set."""
    return _threshold(_FORWARD)


def get_dora_forward_threshold_bytes() -> int:
    """get_dora_forward_threshold_mb in bytes."""
    return get_dora_forward_threshold_mb() << 20


def norm_bytes(chunk_mb):
    """The budget of one norm in bytes: that of the call, else the threshold."""
    if chunk_mb is None:
        return get_dora_norm_threshold_bytes()
    if isinstance(chunk_mb, bool) or not isinstance(chunk_mb, int) or chunk_mb < 1:
        raise ValueError(f"weight_norm: argument `chunk_mb` is {chunk_mb!r}; give a whole number of MB, 1 or more")
    return chunk_mb << 20


def invalidate_environment() -> None:
    """Discards the cached values of PEFT_DORA_*, so that the next use reads the environment again."""
    _thresholds.clear()
    state.read_environment()
