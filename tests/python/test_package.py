"""The import, the shipped files (dependencies of the extension module, contents of the source distribution), and type
annotations and docstrings."""

import ast
import importlib
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import dorajit
import pytest
from dorajit import _native, program

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = pathlib.Path(dorajit.__file__).parent


def inspected(*command):
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not here")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_import_after_removal_from_sys_modules_gives_the_modules_of_the_first(monkeypatch):
    for name in [one for one in sys.modules if one.partition(".")[0] == "dorajit"]:
        monkeypatch.delitem(sys.modules, name)
    assert importlib.import_module("dorajit") is dorajit
    assert importlib.import_module("dorajit.errors").Error is dorajit.Error


def test_extension_module_links_no_cuda_pytorch_or_cxx_library():
    needed = re.findall(r"NEEDED\s+(\S+)", inspected("objdump", "-p", _native.__file__))
    allowed = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
    if "libstdc++.so.6" in needed:
        pytest.skip("built with GCC, for this machine only")
    assert needed and set(needed) <= allowed


@pytest.mark.parametrize("name", ["module", "dorajit"])
def test_files_of_the_wheel_need_no_newer_glibc_than_its_tag(name):
    """In glibc 2.34 libpthread and libdl were merged into libc; a program linked there needs that version."""
    file = _native.__file__ if name == "module" else program.find()
    if tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[-1].split("."))) > (2, 36):
        pytest.skip("built where glibc is newer than where wheels are built")
    dynamic = inspected("readelf", "-dW", file)
    assert "RUNPATH" not in dynamic and "RPATH" not in dynamic
    minors = re.findall(r"@GLIBC_2\.(\d+)", inspected("readelf", "-W", "--dyn-syms", file))
    assert minors and max(map(int, minors)) <= 34


def test_wheel_installs_the_programs():
    """`./dev wheel --check` tests whether the programs work."""
    targets = re.search(r"build.targets = \[(.*)\]", (ROOT / "pyproject.toml").read_text())[1]
    installed = (ROOT / "bindings/python/CMakeLists.txt").read_text()
    looped = re.search(r"foreach\(program (.*)\)\s+if.*\s+install\(TARGETS \${program} .*SKBUILD_SCRIPTS_DIR", installed)
    for target in ("dorajit_cli", "dorajitd"):
        assert f'"{target}"' in targets
        assert target in looped[1].split()


def test_extension_module_exports_only_its_init_function():
    names = {line.split()[-1] for line in inspected("nm", "-D", "--defined-only", _native.__file__).splitlines()}
    assert names == {"PyInit__native"}


def test_extension_module_includes_no_pytorch_header():
    sources = list((ROOT / "bindings/python").glob("*.cc")) + list((ROOT / "bindings/python").glob("*.h"))
    assert sources
    for source in sources:
        assert not re.search(r"#include\s*[<\"](torch|ATen|c10)/", source.read_text()), source


def test_source_distribution_contains_all_needed_files(tmp_path, monkeypatch):
    backend = pytest.importorskip("scikit_build_core.build")
    monkeypatch.chdir(ROOT)
    name = backend.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        files = {member.name.split("/", 1)[1] for member in archive.getmembers() if "/" in member.name}
    wanted = {"pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md", "include/dorajit/dorajit.h",
              "bindings/python/CMakeLists.txt", "bindings/python/module.cc", "databases/CMakeLists.txt",
              "bindings/python/dorajit_autopatch.py", "bindings/python/dorajit.pth", "bindings/python/dorajit.start"}
    wanted |= {f"bindings/python/dorajit/{path.relative_to(FOLDER)}" for path in FOLDER.rglob("*")
               if path.suffix in {".py", ".pyi", ".typed"}}
    assert "bindings/python/dorajit/nn/layer.py" in wanted
    assert wanted <= files
    assert not [one for one in files if one.startswith(("build/", "benchmarks/results/"))]


# --- annotations and docstrings -------------------------------------------------------------------

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
