"""Writes dorajit/_native.pyi from the extension module on the path; called by `./dev stubs`.

The docstring of each function begins with its types, `(Tensor, float) -> None`. The names of its
arguments come from the text signature, or from the first line of the docstring, which pybind11 writes.
"""

import ast
import inspect
import pathlib
import sys
import textwrap

_WIDTH, _INDENT = 100, " " * 4
_NO_BREAK = "\0"  # Stands for a space at which lines are not broken.
_HEADER = """\
# Written by `./dev stubs` from the docstrings of the extension.
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, dtype

"""


def _declaration(name, function):
    if function.__text_signature__:
        signature, text = f"{name}{inspect.signature(function)}", function.__doc__ or ""
    else:
        signature, _, text = (function.__doc__ or "").partition("\n\n")
    try:
        arguments = ast.parse(f"def {signature}: ...").body[0].args
        types = ast.parse(text.partition("\n")[0], mode="func_type")
        named = arguments.posonlyargs + arguments.args
        for argument, annotation in zip(named + [arguments.vararg] * bool(arguments.vararg),
                                        types.argtypes, strict=True):
            argument.annotation = ast.Name(ast.unparse(annotation).replace(" ", _NO_BREAK))
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{name}: the docstring must begin with the types of arguments and result, as in "
                         f"`(Tensor, float) -> None`; it begins with: {signature}\n{text}") from error
    listed, result = ast.unparse(arguments), ast.unparse(types.returns)
    line = f"def {name}({listed}) -> {result}: ..."
    if len(line) > _WIDTH:
        listed = textwrap.fill(listed.replace(": ", f":{_NO_BREAK}"), _WIDTH,
                               initial_indent=_INDENT, subsequent_indent=_INDENT)
        line = f"def {name}(\n{listed}\n) -> {result}: ..."
    return line.replace(_NO_BREAK, " ")


def stub_of(module):
    """The text of the stub of an extension module."""
    public = {name: value for name, value in vars(module).items()
              if name == "__version__" or not name.startswith("_")}
    return _HEADER + "".join(
        (_declaration(name, value) if callable(value) else f"{name}: {type(value).__name__}") + "\n"
        for name, value in public.items())


if __name__ == "__main__":
    del sys.path[0]  # The source folder, where the package has no extension module.
    from dorajit import _native

    (pathlib.Path(__file__).parent / "dorajit/_native.pyi").write_text(stub_of(_native))
