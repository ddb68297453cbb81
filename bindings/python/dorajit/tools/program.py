"""The command line program that comes with the package (docs/cli.md)."""

import importlib.metadata
import json
import os
import shutil
import subprocess

from dorajit import errors


def find():
    """The path of the program `dorajit`: the one installed with this package, else the first on PATH.

    Raises:
        dorajit.Error: neither exists.
    """
    try:
        files = importlib.metadata.files("dorajit") or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if file.name == "dorajit" and file.parent.name in ("bin", "scripts"):
            path = os.path.realpath(file.locate())
            if os.access(path, os.X_OK):
                return path
    if found := shutil.which("dorajit"):
        return found
    raise errors.Error("the program `dorajit` is neither installed with the package nor on PATH; "
                       "install the package from a wheel, or put the program on PATH")


def run(*arguments):
    """The program's output with --json, as Python objects; paths are decoded as by os.fsdecode.

    Raises:
        dorajit.CacheError: the program failed; the message is its standard error.
    """
    result = subprocess.run([find(), *arguments, "--json"], capture_output=True, check=False)
    if result.returncode != 0:
        raise errors.CacheError(os.fsdecode(result.stderr).strip() or f"dorajit ended with exit code "
                                f"{result.returncode}")
    return json.loads(os.fsdecode(result.stdout))
