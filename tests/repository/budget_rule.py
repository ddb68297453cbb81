"""Folders stay within the budgets of lines in line_budgets.txt: budget_rule.py ROOT.

A line of that file has a folder and the lines that all files below it may have together. Whoever needs more cuts what
has become needless, or raises the number and says why in the commit.
"""

import pathlib
import sys

import project_files

_BUDGETS = "tests/repository/line_budgets.txt"


def _budgets(root):
    """The budget of each folder, or ValueError."""
    budgets = {}
    for number, line in enumerate(project_files.read(root, _BUDGETS).splitlines(), start=1):
        words = line.split("#")[0].split()
        if words:
            if len(words) != 2 or not words[1].isdecimal() or words[0] in budgets:
                raise ValueError(f"{_BUDGETS}:{number}: a line is a folder, once, and a number")
            budgets[words[0]] = int(words[1])
    return budgets


def violations(root):
    root = pathlib.Path(root)
    if not (root / _BUDGETS).is_file():
        return [f"{_BUDGETS}: is missing"]
    try:
        budgets = _budgets(root)
    except ValueError as error:
        return [str(error)]
    lines = dict.fromkeys(budgets, 0)
    found = []
    for path in project_files.project_files(root):
        folders = [str(folder) for folder in list(path.parents)[:-1]]
        for folder in folders:
            if folder in lines:
                lines[folder] += (root / path).read_bytes().count(b"\n")
        if folders and folders[-1] not in budgets:
            found.append(f"{path}: {_BUDGETS} has no budget for {folders[-1]}/")
    for folder, budget in budgets.items():
        if lines[folder] > budget:
            found.append(f"{folder}/: {lines[folder]} lines, more than its budget of {budget} in {_BUDGETS}")
        if lines[folder] == 0:
            found.append(f"{_BUDGETS}: there is nothing in {folder}/")
    return found


if __name__ == "__main__":
    sys.exit(project_files.report(violations(sys.argv[1])))
