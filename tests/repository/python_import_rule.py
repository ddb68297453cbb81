"""No module of the Python package imports from a room above its own, and none imports itself through others, also
inside functions: python_import_rule.py ROOT"""

import ast
import graphlib
import pathlib
import sys

# From lowest to highest; rooms of one line may import each other.
ROOMS = (
    ("errors", "checks", "control", "program", "_native", "_torch_setup"),
    ("distributed",),
    ("operations",),
    ("own_kernels",),
    ("norms",),
    ("layers",),
    ("nn", "peft"),
    ("testing", "swift"),
    ("prewarm",),
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


def circle(trees):
    """The names of modules that import each other in a circle; trees: name -> tree. Packages are left out: importing
    one that is not complete yet is harmless."""
    targets = {}
    for name, tree in trees.items():
        nodes = list(ast.walk(tree))
        names = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                names |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        targets[name] = names & set(trees)
    try:
        graphlib.TopologicalSorter(targets).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]
    return []


def violations(root):
    package = pathlib.Path(root) / "bindings/python/dorajit"
    found, trees = [], {}
    for path in sorted(package.rglob("*.py")):
        own, name = path.relative_to(package).parts[0].removesuffix(".py"), path.relative_to(root)
        if own not in LEVELS:
            found.append(f"{name}: the rule does not know the room {own}; add it to ROOMS")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if path.name != "__init__.py":
            trees[".".join(path.relative_to(package.parent).with_suffix("").parts)] = tree
        for line, modules in imported(tree):
            found += [f"{name}:{line}: {own} imports {module}, which is above it" for module in modules
                      if LEVELS.get(module, -1) > LEVELS[own]]
    if way := circle(trees):
        found.append(f"{way[0]}: imports itself: {' -> '.join(way)}; move what both need into a module of its own")
    return found


def main():
    found = violations(sys.argv[1])
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
