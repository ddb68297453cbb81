"""Layers below the operations know none by name: names_rule.py ROOT."""

import re
import sys

import project_files

# bindings/c/operations.cc has the functions of dorajit.h that are named after operations.
_FOLDERS = ("runtime/", "autotune/", "cache/", "bindings/c/")
_ALLOWED = {"bindings/c/operations.cc"}
_LIST = re.compile(r"set\(DORAJIT_OPERATIONS\s+([^)]*?)\s+CACHE")
# Environment variables keep their names.
_METHOD = re.compile(r"dora(?!jit|_autotune)|(?<!exp)lora", re.IGNORECASE)


def _operations(root):
    """Their names, as CMake lists them."""
    try:
        listed = _LIST.search(project_files.read(root, "kernel_templates/CMakeLists.txt"))
    except OSError:
        return []
    # "add" is a word of its own.
    return [name for name in listed[1].split() if name != "add"] if listed else []


def violations(root):
    names = "|".join(_operations(root)) or "(?!)"
    # In quotes, as names are written: "backward" and the like are words, too.
    named = re.compile(rf"[\"`](?:{names}|d_out|d_gain)[\"`/.:]")
    found = []
    for path in project_files.cxx_files(root):
        if not str(path).startswith(_FOLDERS) or str(path) in _ALLOWED:
            continue
        for number, line in enumerate(project_files.read(root, path).splitlines(), start=1):
            mention = _METHOD.search(line) or named.search(line)
            if mention:
                found.append(f"{path}:{number}: {mention[0]}: only kernel_templates/ knows operations; "
                             "ask the object of the operation, and take a neutral example")
    return found


if __name__ == "__main__":
    sys.exit(project_files.report(violations(sys.argv[1])))
