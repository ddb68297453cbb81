"""Placeholders for packages that PEFT's test modules import for tests that do not concern layers."""

import contextlib
import importlib.machinery
import importlib.util
import sys
import types

import pytest

# Packages for data sets, image models and statistics; attrs is used only for a decorator.
ABSENT = ("datasets", "diffusers", "scipy", "attr", "parameterized")


class _Module(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _placeholder(self.__name__, name)


def _placeholder(package, name):
    """Stands for a class or a function of the package: skips the test that uses it."""
    class Used(type):
        def __getattr__(cls, attribute):
            if attribute.startswith("_"):
                raise AttributeError(attribute)
            return _placeholder(package, f"{name}.{attribute}")

        def __getitem__(cls, _):
            return cls

        def __call__(cls, *args, **_):
            if len(args) == 1 and isinstance(args[0], type):  # a decorator of classes
                return args[0]
            if package in sys.modules and isinstance(sys.modules[package], _Module):
                return cls  # during the import of a module
            pytest.skip(f"needs {package}, which is not installed")
    return Used(name, (), {})


@contextlib.contextmanager
def placeholders():
    """Context in which packages that are not installed can be imported."""
    made = [name for name in ABSENT if name not in sys.modules and not importlib.util.find_spec(name)]
    for name in made:
        sys.modules[name] = _Module(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]
