"""No module of the Python package imports from a room above its own: python_import_rule.py ROOT"""

import ast
import pathlib
import sys

# From lowest to highest; modules of one line may import each other.
ROOMS = (
    ("fork_lock", "errors", "checks", "control", "thresholds", "_native", "_torch_setup"),
    ("distributed",),
    ("operations",),
    ("own_kernels",),
    ("norms",),
    ("layers",),
    ("nn", "peft"),
    ("tools", "testing"),
    ("__init__",),
)
LEVELS = {name: level for level, names in enumerate(ROOMS) for name in names}


def imported(tree):
    """(line, modules below dorajit) of each import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dorajit":
            below = node.module.split(".")[1:]
            yield node.lineno, [below[0]] if below else [one.name for one in node.names]
        elif isinstance(node, ast.Import):
            yield node.lineno, [one.name.split(".")[1] for one in node.names if one.name.startswith("dorajit.")]


def violations(root):
    package = pathlib.Path(root) / "bindings/python/dorajit"
    found = []
    for path in sorted(package.rglob("*.py")):
        own, name = path.relative_to(package).parts[0].removesuffix(".py"), path.relative_to(root)
        if own not in LEVELS:
            found.append(f"{name}: the rule does not know the room {own}; add it to ROOMS")
            continue
        for line, modules in imported(ast.parse(path.read_text(encoding="utf-8"))):
            found += [f"{name}:{line}: {own} imports {module}, which is above it" for module in modules
                      if LEVELS.get(module, -1) > LEVELS[own]]
    return found


def main():
    found = violations(sys.argv[1])
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
