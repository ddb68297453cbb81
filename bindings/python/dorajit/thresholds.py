"""The memory that layers may use for temporaries.

The environment variables are read at first use and cached; after `invalidate_environment()` they are read
again.
"""

import os
import warnings

from dorajit import control

_DEFAULT_MB, _VALID = 256, range(16, 65537)
_NORM, _FORWARD = "PEFT_DORA_NORM_CHUNK_MB", "PEFT_DORA_FWD_CHUNK_MB"
_read = {}


def _get(name):
    mb = _read.get(name)
    if mb is None:
        text = os.environ.get(name, "").strip() or str(_DEFAULT_MB)
        mb = int(text) if text.isdecimal() else None
        if mb not in _VALID:
            warnings.warn(f"environment variable {name} is {text!r}; give a whole number of MB from {_VALID[0]} to "
                          f"{_VALID[-1]}. {_DEFAULT_MB} is used", RuntimeWarning, stacklevel=3)
            mb = _DEFAULT_MB
        mb = _read.setdefault(name, mb)  # another thread may have called a setter
    return mb


def _set(function, name, mb):
    if type(mb) is not int or mb not in _VALID:
        raise ValueError(f"{function}: argument `mb` is {mb!r}; give a whole number from {_VALID[0]} to {_VALID[-1]}")
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
    _read.clear()
    control.state.read_environment()
