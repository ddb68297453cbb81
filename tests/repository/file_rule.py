"""Files are short and have no unfinished parts; tests expect nothing of the time that passes: file_rule.py ROOT."""

import re
import sys

import project_files

_MAX_LINES = 400
_BOUNDED_SUFFIXES = project_files.CXX_SUFFIXES | {".py", ".cmake", ".sh"}
# Split, so that this file does not contain the marks.
_MARKS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
# A test gives what it tests a clock of its own; a busy machine may take any time.
_WALL_TIME = re.compile(r"(EXPECT|ASSERT)_[LG][TE]\([^;]*lock::now\(\)")


def violations(root):
    found = []
    for path in project_files.project_files(root):
        if path.suffix not in _BOUNDED_SUFFIXES and path.name not in {"CMakeLists.txt", "dev"}:
            continue
        text = project_files.read(root, path)
        for expectation in _WALL_TIME.finditer(text) if path.suffix == ".cc" else ():
            found.append(f"{path}:{text.count(chr(10), 0, expectation.start()) + 1}: {expectation[0]}: a busy "
                         "machine fails it; let the test set the clock (runtime/base/clock.h)")
        lines = text.splitlines()
        if len(lines) > _MAX_LINES:
            found.append(f"{path}: {len(lines)} lines, more than {_MAX_LINES}: look for the second "
                         "concept")
        for number, line in enumerate(lines, start=1):
            if mark := _MARKS.search(line):
                found.append(f"{path}:{number}: {mark[0]}: finish it or remove it")
    return found


if __name__ == "__main__":
    sys.exit(project_files.report(violations(sys.argv[1])))
