"""The command line program that comes with the package (docs/cli.md), and the cache folder, which it reads and writes."""

import importlib.metadata
import json
import os
import shutil
import subprocess
from typing import Any, Union

from dorajit import errors


def find():
    """The path of the program `dorajit`: the one installed with this package, else the first on PATH. Raises dorajit.Error
    if neither exists."""
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
    """The program's output with --json, as Python objects; paths are decoded as by os.fsdecode. Raises dorajit.CacheError
    with its standard error if the program failed."""
    result = subprocess.run([find(), *arguments, "--json"], capture_output=True, check=False)
    if result.returncode != 0:
        raise errors.CacheError(os.fsdecode(result.stderr).strip() or f"dorajit ended with exit code {result.returncode}")
    return json.loads(os.fsdecode(result.stdout))


def _named(function, path):
    """The absolute path, so that the program does not parse it as an option."""
    try:
        return os.path.abspath(os.fsdecode(path))
    except TypeError:
        raise TypeError(f"cache.{function}: argument `path` is a {type(path).__name__}; pass the name of a file") from None


class Cache:
    """Winners and compiled kernels on disk, which all processes of a user share (docs/tuning_database.md)."""

    @property
    def path(self) -> str:
        """The folder; see DORAJIT_CACHE_DIR in docs/environment.md."""
        return run("cache", "path")["folder"]

    @property
    def database(self) -> str:
        """The file of the tuning database, which may not exist yet."""
        return run("cache", "path")["database"]

    def winners(self) -> dict[str, Any]:
        """The output of `dorajit show --json`: the database and its winners."""
        return run("show")

    def stats(self) -> dict[str, int]:
        """Counts of trials, winners and artifacts (compiled kernels), and the artifacts' size in bytes (artifact_bytes)."""
        shown, kernels = run("show"), run("cache", "size")["kernels"]
        return {"trials": shown["database"]["trials"], "winners": len(shown["winners"]),
                "artifacts": kernels["files"], "artifact_bytes": kernels["bytes"]}

    def export_to(self, path: Union[str, os.PathLike]) -> None:
        """Writes the measurements to a text file that other machines can import.

        Raises:
            TypeError: `path` is not a path.
            dorajit.CacheError: the file cannot be written; the message says why.
        """
        run("export", "--out", _named("export_to", path))

    def import_from(self, *paths: Union[str, os.PathLike]) -> dict[str, Any]:
        """Adds measurements that other machines have exported. Returns the report of `dorajit import --json`.

        Raises:
            TypeError: one of `paths` is not a path.
            dorajit.CacheError: a file cannot be read, or is not an export.
        """
        return run("import", *(_named("import_from", path) for path in paths))

    def __repr__(self):
        return "dorajit.cache"


cache = Cache()
