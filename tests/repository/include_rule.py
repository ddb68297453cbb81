"""Which files may include which: include_rule.py ROOT. See ARCHITECTURE.md for the layers."""

import pathlib
import re
import sys

import project_files

_BASE = ["runtime/base/", "kernel_templates/"]
_RUNTIME = ["runtime/", "kernel_templates/"]
_AUTOTUNE = ["autotune/", "cache/", *_RUNTIME]


def _rooms(layer, order, below):
    """The permitted includes of a layer's rooms: themselves, the rooms listed with them, and `below`."""
    return {f"{layer}{room}/": [f"{layer}{name}/" for name in [room, *lower]] + below
            for room, lower in order.items()}


# The longest matching prefix of a file determines its permitted includes; None: files must be in a room.
_ALLOWED = {
    "kernel_templates/": ["kernel_templates/"],
    "runtime/base/": _BASE,
    "runtime/": _RUNTIME,
    "own_kernels/": ["own_kernels/", *_BASE],
    "cache/": None,
    **_rooms("cache/", {"files": [], "records": ["files"], "artifacts": ["files"],
                        "database": ["records", "files"]}, _BASE),
    "autotune/": None,
    **_rooms("autotune/", {"search": [],
                           "service/protocol": [],
                           "service/client": ["service/protocol"],
                           "service/daemon": ["service/protocol"],
                           "sources": ["search", "service/client", "service/protocol"]}, ["cache/", *_RUNTIME]),
    "autotune/engine_factory.": ["own_kernels/", *_AUTOTUNE],
    "bindings/": None,
    **_rooms("bindings/", {"c": [], "python": ["c"]}, ["own_kernels/", *_AUTOTUNE, "include/"]),
    "apps/": None,
    "apps/cli/": ["apps/cli/", *_AUTOTUNE],
    "apps/cli/terminal/": ["apps/cli/terminal/", "cache/records/", *_RUNTIME],
    **_rooms("apps/cli/", {"options": ["terminal"],
                           "views": ["options", "terminal"],
                           "models": ["options", "terminal"],
                           "bench": ["models", "views", "options", "terminal"],
                           "build": ["models", "views", "options", "terminal"],
                           "report": ["bench", "views", "options", "terminal"],
                           "commands": ["report", "build", "bench", "models", "views", "options", "terminal"]},
             ["own_kernels/", *_AUTOTUNE]),
    "apps/daemon/": ["apps/daemon/", "apps/cli/terminal/", *_AUTOTUNE],
    "include/": ["include/"],
}
_EMBEDDED_LISTS = re.compile(r"(?:GLOB embedded .*?CMAKE_CURRENT_SOURCE_DIR}\"|APPEND embedded)([^)]*)\)", re.DOTALL)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
_SEARCH_PATH = ["", "include/", "kernel_templates/"]


def _resolve(root, includer, name):
    """The file of the repository that `name` refers to, or None."""
    for folder in [*_SEARCH_PATH, f"{includer.parent}/"]:
        if (root / folder / name).is_file():
            return f"{folder}{name}"
    return None


def _prefix_of(file):
    return max((prefix for prefix in _ALLOWED if file.startswith(prefix)), key=len)


def _embedded(root):
    """The sources of the JIT compilers, by the lists of patterns in kernel_templates/CMakeLists.txt."""
    text = project_files.read(root, "kernel_templates/CMakeLists.txt")
    lists = _EMBEDDED_LISTS.findall(text)
    if len(lists) != 2:
        raise ValueError("kernel_templates/CMakeLists.txt: the lists of embedded sources were not found")
    return [f"kernel_templates/{pattern}" for found in lists for pattern in found.split()]


def _fault(root, path, quoted, name, embedded):
    """The fault of an include, or None."""
    is_embedded = any(path.match(pattern) for pattern in embedded)
    target = _resolve(root, path, name)
    file = str(path)
    if name == "sqlite3.h" and not file.startswith("cache/database/"):
        return "only cache/database/ may use SQLite"
    if is_embedded and not quoted and not file.startswith("kernel_templates/cpu/"):
        return "a template that is compiled at run time includes no system header"
    if target is None:
        return "no such file in the repository" if quoted else None
    if is_embedded and not (root / "kernel_templates" / name).is_file():
        return "templates name each other relative to kernel_templates/"
    prefix = _prefix_of(file)
    if not any(target.startswith(allowed) for allowed in _ALLOWED[prefix]):
        return f"{prefix} may include only {', '.join(_ALLOWED[prefix])}"
    return None


def violations(root):
    root = pathlib.Path(root)
    found = []
    embedded = _embedded(root)
    for path in project_files.cxx_files(root):
        file = str(path)
        if not file.startswith(tuple(_ALLOWED)):
            continue
        if _ALLOWED[_prefix_of(file)] is None:
            found.append(f"{file}: {_prefix_of(file)} is divided into rooms; move the file into one of them")
            continue
        text = project_files.read(root, path)
        for match in _INCLUDE.finditer(text):
            fault = _fault(root, path, match[1] == '"', match[2], embedded)
            if fault:
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path}:{line}: {match[2]}: {fault}")
    return found


if __name__ == "__main__":
    sys.exit(project_files.report(violations(sys.argv[1])))
