"""The files of the repository that the rules check."""

import os
import pathlib
import subprocess

CXX_SUFFIXES = {".cc", ".h", ".hpp", ".cu", ".cuh"}
_SKIPPED_FOLDERS = {".git", "build", "__pycache__"}


def project_files(root):
    """Sorted paths relative to `root`: tracked and addable files in git, else all files except build output."""
    root = pathlib.Path(root)
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
        listing = subprocess.run(command, capture_output=True, check=False)
        if listing.returncode == 0:
            names = {os.fsdecode(name) for name in listing.stdout.split(b"\0") if name}
            return sorted(pathlib.PurePosixPath(name) for name in names if (root / name).is_file())
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in _SKIPPED_FOLDERS]
        relative = pathlib.PurePosixPath(os.path.relpath(folder, root))
        found += [relative / name for name in names]
    return sorted(found)


def cxx_files(root):
    return [path for path in project_files(root) if path.suffix in CXX_SUFFIXES]


def read(root, path):
    return (pathlib.Path(root) / path).read_text(encoding="utf-8", errors="replace")


def report(violations):
    """Prints each violation and returns the exit status."""
    for violation in violations:
        print(violation)
    return 1 if violations else 0
