"""The exceptions that dorajit raises; docs/errors.md says what each status means."""

from typing import Any


class Error(RuntimeError):
    """An error that the native library reports.

    Attributes:
        status: the status code of the C interface (docs/errors.md).
        log: the compiler's output; empty except for CompileError.
    """

    def __init__(self, message: str, status: int = 11, log: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.log = log

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.status, self.log)


class InvalidArgumentError(Error, ValueError):
    """An argument is invalid: its shape, its strides, its memory, or an overlap with another."""


class UnsupportedError(Error, TypeError):
    """The arguments are valid, but no kernel takes them."""


class WrongDeviceError(Error, ValueError):
    """Tensors are on different devices."""


class NoDriverError(Error):
    """The NVIDIA driver is missing or too old."""


class NoCompilerError(Error):
    """NVRTC is missing or too old."""


class CompileError(Error):
    """A compiler refused a kernel; `log` has the compiler's output."""


class DriverError(Error):
    """A call of the CUDA driver failed."""


class OutOfMemoryError(Error, MemoryError):
    """Memory of the host or of the device is exhausted."""


class CaptureUnsafeError(Error):
    """A CUDA graph is being captured and no kernel is loaded: call `dorajit.warmup` before."""


class CacheError(Error):
    """A file that the call needs cannot be read or written."""


class InternalError(Error):
    """A defect of dorajit; please report the message."""


class FallbackError(Error):
    """A call inside `dorajit.force_native()` would have run in PyTorch; the message says why."""


UNSUPPORTED = 2
_BY_STATUS = dict(enumerate((
    InvalidArgumentError, UnsupportedError, WrongDeviceError, NoDriverError, NoCompilerError, CompileError, DriverError,
    OutOfMemoryError, CaptureUnsafeError, CacheError), start=1))


def needs_torch(what, cause):
    """The ImportError for a name that needs PyTorch; `cause` is the error of importing PyTorch."""
    if isinstance(cause, ModuleNotFoundError) and cause.name == "torch":
        return ImportError(f"{what} needs PyTorch, which is not installed here: pip install torch")
    return ImportError(f"{what} needs PyTorch, which cannot be imported here: {cause}")


def from_status(status, message, log):
    """The exception for a status of the C interface."""
    return _BY_STATUS.get(status, InternalError)(message, status, log)
