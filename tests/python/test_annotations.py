"""Type annotations and docstrings of the package."""

import ast
import inspect
import os
import pathlib
import re
import subprocess
import sys

import dorajit
import pytest

FOLDER = pathlib.Path(dorajit.__file__).parent


def test_public_functions_have_types_and_docstrings():
    assert (FOLDER / "py.typed").exists()
    # Another stub would hide the annotations of its module.
    assert [one.name for one in FOLDER.rglob("*.pyi")] == ["_native.pyi"]
    for name in dorajit.__all__:
        public = getattr(dorajit, name)
        assert inspect.getdoc(public), name
        if inspect.isfunction(public):
            signature = inspect.signature(public)
            missing = [p.name for p in signature.parameters.values() if p.annotation is inspect.Parameter.empty]
            assert not missing and signature.return_annotation is not inspect.Signature.empty, name


def words(public):
    """The docstring of a function, with those of the functions that it refers to."""
    text = inspect.getdoc(public)
    for other in re.findall(r"\b(?:those of|see) (fused_\w+)", text, re.IGNORECASE):
        text += words(getattr(dorajit, other))
    return text


OPERATIONS = ["fused_dora_compose", "fused_dora_compose_autograd", "fused_dora_compose_residual",
              "fused_dora_forward_and_inner", "fused_norm_assembly", "compose_backward", "weight_norm"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_docstrings_of_operations_state_shapes_types_errors_and_source(name):
    public = getattr(dorajit, name)
    text = words(public)
    for part in ("Args:", "Returns:", "Raises:", "TypeError:", "ValueError:"):
        assert part in text, part
    assert re.search(r"\[[^\]]*(out|N, C)[^\]]*\]", text), "no shape"
    assert re.search(r"\btype\b|float32", text), "no element type"
    assert "arXiv:" in text + inspect.getmodule(public).__doc__, "no source"


def test_docstrings_explain_every_argument():
    functions = [getattr(dorajit, name) for name in dorajit.__all__]
    functions += [dorajit.FusedDoRAComposeFunction.apply, dorajit.cache.export_to, dorajit.cache.import_from]
    for function in filter(inspect.isroutine, functions):
        for name in inspect.signature(function).parameters:
            assert re.search(rf"\b{name}\b", words(function)), (function, name)


def test_every_module_has_a_docstring():
    for path in FOLDER.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path


STRICT_USER = """
import torch
from torch import Tensor

import dorajit
from dorajit import fused_dora_compose_residual, testing

a, g = torch.randn(4, 8), torch.ones(8)
out: Tensor = dorajit.fused_dora_compose(a, a, g, 0.5, inplace=False)
out = fused_dora_compose_residual(a, a, g, 0.5, bias=g)
out = dorajit.FusedDoRAComposeFunction.apply(a, a, g, 0.5)
out, inner = dorajit.fused_dora_forward_and_inner(a, a, g, 0.5)
(norm,) = dorajit.fused_norm_assembly(g, g, g, 0.5)
gradient: Tensor | None = dorajit.compose_backward(a, a, g, 0.5)[0]
path: str = dorajit.explain_dispatch(a, a, g).path
with dorajit.disabled(), dorajit.force_native(), dorajit.tuning("off"):
    counts: dict[str, int] = testing.launch_counts()
dorajit.warmup("compose", a, a, g)
try:
    norm = dorajit.weight_norm(a, a, a, 0.5)
except dorajit.CompileError as error:
    log: str = error.log
dorajit.patch_peft(dropout="low_rank", low_rank_dtype="base").undo()
layer = dorajit.nn.DoRALinear.from_linear(torch.nn.Linear(4, 4), rank=2, alpha=2)
out = layer(a)
paths: list[str] = [one.path for one in dorajit.explain_dispatch(layer).values()]
line: str = dorajit.explain_dispatch(layer).summary()
"""


def test_program_passes_strict_type_check(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(STRICT_USER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent",
         f"--cache-dir={tmp_path}/cache", program], capture_output=True, text=True, check=False,
        env={**os.environ, "MYPYPATH": str(FOLDER.parent)})
    assert done.returncode == 0, done.stdout + done.stderr
