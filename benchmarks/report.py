"""Files of results: the conditions of a run, the names of the columns once, and a line for each row.

    python3 report.py OLD.json --out results/h100/NEW.json [--drop COLUMN ...]

stores a report whose rows are objects, such as layers.py writes, in that form.
"""

import argparse
import json
import os


def _flat(row, prefix=""):
    """Columns of nested objects are named "outer/inner"."""
    found = {}
    for name, value in row.items():
        found |= _flat(value, f"{prefix}{name}/") if isinstance(value, dict) else {prefix + name: value}
    return found


def _short(value):
    """Six significant digits: more than any measurement repeats."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def write(path, conditions, rows):
    """Writes to `path` unless that is None, in one step, so that an interrupted run leaves a whole file. A row without a
    column has null there."""
    if path is None:
        return
    rows = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = ",\n".join("  " + json.dumps([_short(row.get(name)) for name in columns]) for row in rows)
    head = "".join(f' {json.dumps(name)}: {json.dumps(value)},\n' for name, value in conditions.items())
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(f'{{\n{head} "columns": {json.dumps(columns)},\n "rows": [\n{lines}\n ]\n}}\n')
    os.replace(f"{path}.part", path)


def read(path):
    """The conditions, and "rows" as nested objects without the columns that a row does not have."""
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    if "columns" in report:
        columns, rows = report.pop("columns"), []
        for values in report["rows"]:
            rows.append(row := {})
            for name, value in zip(columns, values, strict=True):
                *outer, last = name.split("/")
                inner = row
                for part in outer if value is not None else ():
                    inner = inner.setdefault(part, {})
                if value is not None:
                    inner[last] = value
        report["rows"] = rows
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("--out", required=True)
    parser.add_argument("--drop", nargs="*", default=[], metavar="COLUMN")
    options = parser.parse_args()
    conditions = read(options.report)
    rows = conditions.pop("rows")
    write(options.out, conditions, [{name: value for name, value in row.items() if name not in options.drop}
                                    for row in rows])


if __name__ == "__main__":
    main()
