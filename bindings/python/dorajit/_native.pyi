"""The extension module. It is not part of the public interface; its docstrings give the types."""

from typing import Any

def __getattr__(name: str) -> Any: ...
