"""Layers outside of the operations contain no name of an operation: names_rule.py ROOT."""

import re
import sys

import project_files

_FOLDERS = ("runtime/", "autotune/", "cache/", "bindings/c/", "bindings/python/")
_PACKAGE = "bindings/python/dorajit/"
# Exceptions. bindings/c/operations.cc has the functions of dorajit.h that are named after operations,
# bindings/python/linear*.cc and gated_mlp.cc the passes of layers. In the Python package, the parts that are specific to
# DoRA: its public functions, their formulas, the code that names the tensors of an operation, the norms, the
# layers and the patch for PEFT, with their settings.
_ALLOWED = ("bindings/c/operations.cc", "bindings/python/linear",
            "bindings/python/gated_mlp.cc", *(_PACKAGE + name for name in (
    "__init__.py", "control.py", "distributed/", "layers/", "nn/", "norms/", "peft/", "prewarm/",
    "operations/api.py", "operations/autograd.py", "operations/compositions.py", "operations/expression.py",
    "operations/gain.py", "operations/torch_library.py")))
_LIST = re.compile(r"set\(DORAJIT_OPERATIONS\s+([^)]*?)\s+CACHE")
# Environment variables keep their names.
_METHOD = re.compile(r"(?<!peft_)dora(?!jit|_autotune)|(?<!exp)lora", re.IGNORECASE)


def _operations(root):
    """The names of the operations, as listed in CMake."""
    try:
        listed = _LIST.search(project_files.read(root, "kernel_templates/CMakeLists.txt"))
    except OSError:
        return []
    # "add" is an ordinary word.
    return [name for name in listed[1].split() if name != "add"] if listed else []


def _checked_files(root):
    for path in project_files.project_files(root):
        is_source = path.suffix in project_files.CXX_SUFFIXES or path.suffix == ".py"
        if is_source and str(path).startswith(_FOLDERS) and not str(path).startswith(_ALLOWED):
            yield path


def violations(root):
    names = "|".join(_operations(root)) or "(?!)"
    # Only in quotes, because "backward" and others are ordinary words, too.
    named = re.compile(rf"[\"`](?:{names}|d_out|d_gain)[\"`/.:]")
    found = []
    for path in _checked_files(root):
        for number, line in enumerate(project_files.read(root, path).splitlines(), start=1):
            mention = _METHOD.search(line) or named.search(line)
            if mention:
                found.append(f"{path}:{number}: {mention[0]}: only kernel_templates/ may name operations; "
                             "use the object of the operation, or a neutral example")
    return found


if __name__ == "__main__":
    sys.exit(project_files.report(violations(sys.argv[1])))
