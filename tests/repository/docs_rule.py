"""Documents are consistent: docs_rule.py ROOT.

Targets of links exist, and docs/environment.md lists every environment variable.
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


def violations(root):
    root = pathlib.Path(root)
    files = project_files.project_files(root)
    found = []
    for path in files:
        if path.suffix == ".md":
            found += _dead_links(root, path)
    return found + list(_unlisted_variables(root, files))


if __name__ == "__main__":
    sys.exit(project_files.report(violations(sys.argv[1])))
