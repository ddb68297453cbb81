"""Winners and compiled kernels on disk, which all processes of a user share."""

import os
from typing import Any, Union

from dorajit.tools import program


def _named(function, path):
    """The absolute path, so that the program does not parse it as an option."""
    try:
        return os.path.abspath(os.fsdecode(path))
    except TypeError:
        raise TypeError(f"cache.{function}: argument `path` is a {type(path).__name__}; pass the name of "
                        "a file") from None


class Cache:
    """The cache folder and the tuning database in it (docs/tuning_database.md)."""

    @property
    def path(self) -> str:
        """The folder; see DORAJIT_CACHE_DIR in docs/environment.md."""
        return program.run("cache", "path")["folder"]

    @property
    def database(self) -> str:
        """The file of the tuning database, which may not exist yet."""
        return program.run("cache", "path")["database"]

    def winners(self) -> dict[str, Any]:
        """The output of `dorajit show --json`: the database and its winners."""
        return program.run("show")

    def stats(self) -> dict[str, int]:
        """Counts of trials, winners and artifacts (compiled kernels), and the artifacts' size in bytes
        (artifact_bytes)."""
        shown, kernels = program.run("show"), program.run("cache", "size")["kernels"]
        return {"trials": shown["database"]["trials"], "winners": len(shown["winners"]),
                "artifacts": kernels["files"], "artifact_bytes": kernels["bytes"]}

    def export_to(self, path: Union[str, os.PathLike]) -> None:
        """Writes the measurements to a text file that other machines can import.

        Raises:
            TypeError: `path` is not a path.
            dorajit.CacheError: the file cannot be written; the message says why.
        """
        program.run("export", "--out", _named("export_to", path))

    def import_from(self, *paths: Union[str, os.PathLike]) -> dict[str, Any]:
        """Adds measurements that other machines have exported. Returns the report of `dorajit import --json`.

        Raises:
            TypeError: one of `paths` is not a path.
            dorajit.CacheError: a file cannot be read, or is not an export.
        """
        return program.run("import", *(_named("import_from", path) for path in paths))

    def __repr__(self):
        return "dorajit.cache"


cache = Cache()
