"""docs/c_abi.md: its table of operations is what the library says of them."""

import pathlib

from dorajit.operations.table import operations

PAGE = pathlib.Path(__file__).parents[2] / "docs/c_abi.md"


def text_of(operand):
    shape = ", ".join(operand.dimensions)
    return f"{operand.name}{'' if operand.is_required else '?'} [{shape}]"


def row(operation):
    given = ", ".join(map(text_of, operation.inputs))
    made = ", ".join(map(text_of, operation.outputs))
    scalars = ", ".join(operation.scalars) or "-"
    return f"| `{operation.name}` | {given} | {made} | {scalars} | {operation.documentation} |"


def test_each_operation_has_its_row():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `") and " [" in line]
    wanted = [row(one) for one in operations.values()]
    assert rows == wanted, "put these rows into docs/c_abi.md:\n" + "\n".join(wanted)
