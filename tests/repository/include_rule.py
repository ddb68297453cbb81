"""Who may include whom: include_rule.py ROOT. See ARCHITECTURE.md for the layers."""

import pathlib
import re
import sys

import project_files

# The longest prefix that fits a file decides what it may include.
_ALLOWED = {
    "kernel_templates/": ["kernel_templates/"],
    "runtime/base/": ["runtime/base/", "kernel_templates/"],
    "runtime/": ["runtime/", "kernel_templates/"],
    "cache/": ["cache/", "runtime/base/", "kernel_templates/"],
    "autotune/": ["autotune/", "cache/", "runtime/", "kernel_templates/"],
    "bindings/": ["bindings/", "autotune/", "cache/", "runtime/", "kernel_templates/", "include/"],
    "include/": ["include/"],
}
# What the JIT compilers read: no toolkit or system header, and names relative to the folder.
_JIT_SOURCES = re.compile(r"kernel_templates/((math|cuda)/|(streaming_config|partial_sums|broadcast|element_type|arguments)\.h$)")
_EMBEDDED = re.compile(r"kernel_templates/((math|cuda|cpu)/.*h$|(streaming_config|partial_sums|broadcast|element_type|arguments)\.h$)")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
_SEARCH_PATH = ["", "include/", "kernel_templates/"]


def _resolve(root, includer, name):
    """The repository's file that `name` stands for, or None."""
    for folder in [*_SEARCH_PATH, f"{includer.parent}/"]:
        if (root / folder / name).is_file():
            return f"{folder}{name}"
    return None


def _fault(root, path, quoted, name):
    """What is wrong with one include, or None."""
    target = _resolve(root, path, name)
    file = str(path)
    if name == "sqlite3.h" and not file.startswith("cache/"):
        return "only cache/ may use SQLite"
    if not quoted and _JIT_SOURCES.match(file):
        return "a template that is compiled at run time includes no system header"
    if target is None:
        return "no such file in the repository" if quoted else None
    if _EMBEDDED.match(file) and not (root / "kernel_templates" / name).is_file():
        return "templates name each other relative to kernel_templates/"
    prefix = max((p for p in _ALLOWED if file.startswith(p)), key=len)
    if not any(target.startswith(allowed) for allowed in _ALLOWED[prefix]):
        return f"{prefix} may include only {', '.join(_ALLOWED[prefix])}"
    return None


def violations(root):
    root = pathlib.Path(root)
    found = []
    for path in project_files.cxx_files(root):
        if not str(path).startswith(tuple(_ALLOWED)):
            continue
        text = project_files.read(root, path)
        for match in _INCLUDE.finditer(text):
            fault = _fault(root, path, match[1] == '"', match[2])
            if fault:
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path}:{line}: {match[2]}: {fault}")
    return found


if __name__ == "__main__":
    sys.exit(project_files.report(violations(sys.argv[1])))
