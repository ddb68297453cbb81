"""Files are short and have no unfinished parts: file_rule.py ROOT."""

import re
import sys

import project_files

_MAX_LINES = 400
_BOUNDED_SUFFIXES = project_files.CXX_SUFFIXES | {".py", ".cmake", ".sh"}
# Split, so that this file does not contain the marks.
_MARKS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")


def violations(root):
    found = []
    for path in project_files.project_files(root):
        if path.suffix not in _BOUNDED_SUFFIXES and path.name not in {"CMakeLists.txt", "dev"}:
            continue
        lines = project_files.read(root, path).splitlines()
        if len(lines) > _MAX_LINES:
            found.append(f"{path}: {len(lines)} lines, more than {_MAX_LINES}: look for the second "
                         "concept")
        for number, line in enumerate(lines, start=1):
            if mark := _MARKS.search(line):
                found.append(f"{path}:{number}: {mark[0]}: finish it or remove it")
    return found


if __name__ == "__main__":
    sys.exit(project_files.report(violations(sys.argv[1])))
