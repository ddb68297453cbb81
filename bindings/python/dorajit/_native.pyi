"""The extension module, which is not part of the public interface."""

from typing import Any

def __getattr__(name: str) -> Any: ...
