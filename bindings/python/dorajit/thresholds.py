"""The memory that layers may use for temporaries.

The environment variables are read at first use and cached; after `invalidate_environment()` they are read
again.
"""

import os
import warnings

from dorajit import control, fork_lock

_LEAST_MB, _MOST_MB, _DEFAULT_MB = 16, 65536, 256
_NORM, _FORWARD = "PEFT_DORA_NORM_CHUNK_MB", "PEFT_DORA_FWD_CHUNK_MB"
_lock = fork_lock.make()
_read = {}


def _get(name):
    found = _read.get(name)
    if found is None:
        with _lock:
            found = _read.setdefault(name, _parse(name))
    return found


def _parse(name):
    text = os.environ.get(name, "").strip()
    if not text:
        return _DEFAULT_MB
    try:
        return _checked(name, int(text))
    except ValueError as error:
        warnings.warn(f"environment variable {name} is {text!r}; give a whole number of MB from "
                      f"{_LEAST_MB} to {_MOST_MB}. {_DEFAULT_MB} is used ({error})",
                      RuntimeWarning, stacklevel=4)
        return _DEFAULT_MB


def _checked(name, mb):
    if isinstance(mb, bool) or not isinstance(mb, int) or not _LEAST_MB <= mb <= _MOST_MB:
        raise ValueError(f"{name}: argument `mb` is {mb!r}; give a whole number from {_LEAST_MB} to "
                         f"{_MOST_MB}")
    return mb


def _set(function, name, mb):
    _checked(function, mb)
    with _lock:
        os.environ[name] = str(mb)
        _read[name] = mb


def set_dora_norm_threshold_mb(mb: int) -> None:
    """Sets PEFT_DORA_NORM_CHUNK_MB, the memory for temporaries of one weight norm.

    Args:
        mb: a whole number of MB (2^20 bytes).

    Raises:
        ValueError: `mb` is not a whole number from 16 to 65536.
    """
    _set("set_dora_norm_threshold_mb", _NORM, mb)


def get_dora_norm_threshold_mb() -> int:
    """The memory for temporaries of one weight norm, in MB (2^20 bytes); 256 unless set."""
    return _get(_NORM)


def get_dora_norm_threshold_bytes() -> int:
    """get_dora_norm_threshold_mb in bytes."""
    return get_dora_norm_threshold_mb() << 20


def set_dora_forward_threshold_mb(mb: int) -> None:
    """Sets PEFT_DORA_FWD_CHUNK_MB, the memory of one slice of the base result under dropout.

    Args:
        mb: a whole number of MB (2^20 bytes).

    Raises:
        ValueError: `mb` is not a whole number from 16 to 65536.
    """
    _set("set_dora_forward_threshold_mb", _FORWARD, mb)


def get_dora_forward_threshold_mb() -> int:
    """The memory of one slice of the base result under dropout, in MB (2^20 bytes); 256 unless set."""
    return _get(_FORWARD)


def get_dora_forward_threshold_bytes() -> int:
    """get_dora_forward_threshold_mb in bytes."""
    return get_dora_forward_threshold_mb() << 20


def norm_bytes(chunk_mb):
    """The budget of one norm in bytes: that of the call, else the threshold."""
    if chunk_mb is None:
        return get_dora_norm_threshold_bytes()
    if isinstance(chunk_mb, bool) or not isinstance(chunk_mb, int) or chunk_mb < 1:
        raise ValueError(f"weight_norm: argument `chunk_mb` is {chunk_mb!r}; give a whole number of "
                         "MB, 1 or more")
    return chunk_mb << 20


def invalidate_environment() -> None:
    """Discards the cached values of PEFT_DORA_*, so that the next use reads the environment again."""
    with _lock:
        _read.clear()
    control.state.read_environment()
