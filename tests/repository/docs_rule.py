"""Documents are consistent: docs_rule.py ROOT.

Targets of links exist, docs/environment.md lists every environment variable, and `dorajit doctor` knows those that the
page lists.
"""

import pathlib
import re
import sys

import project_files

_CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_VARIABLE = re.compile(r'"(DORAJIT_[A-Z0-9_]+)"')
_LAYERS = ("runtime/", "cache/", "autotune/", "bindings/", "apps/")
_VARIABLES_PAGE = "docs/environment.md"
_LISTED = re.compile(r"^\| `(DORAJIT_[A-Z0-9_]+)`", re.MULTILINE)
_DOCTOR = "apps/cli/commands/doctor_command.cc"


def _dead_links(root, path):
    text = _CODE_BLOCK.sub("", project_files.read(root, path))
    for target in _LINK.findall(text):
        file = target.split("#")[0]
        if file and ":" not in file and not (root / path.parent / file).exists():
            yield f"{path}: the target of the link {target} does not exist"


def _unlisted_variables(root, files):
    page = root / _VARIABLES_PAGE
    listed = page.read_text(encoding="utf-8") if page.is_file() else ""
    for path in files:
        if path.suffix == ".cc" and str(path).startswith(_LAYERS):
            for variable in sorted(set(_VARIABLE.findall(project_files.read(root, path)))):
                if not re.search(rf"\b{variable}\b", listed):
                    yield f"{path}: {variable} is not in {_VARIABLES_PAGE}"


def _unknown_to_doctor(root):
    page, doctor = root / _VARIABLES_PAGE, root / _DOCTOR
    if page.is_file() and doctor.is_file():
        known = _VARIABLE.findall(doctor.read_text(encoding="utf-8"))
        for variable in _LISTED.findall(page.read_text(encoding="utf-8")):
            if variable not in known:
                yield f"{_DOCTOR}: {variable} of {_VARIABLES_PAGE} is not known"


def violations(root):
    root = pathlib.Path(root)
    files = project_files.project_files(root)
    found = []
    for path in files:
        if path.suffix == ".md":
            found += _dead_links(root, path)
    return found + list(_unlisted_variables(root, files)) + list(_unknown_to_doctor(root))


if __name__ == "__main__":
    sys.exit(project_files.report(violations(sys.argv[1])))
