"""The import, and the shipped files: dependencies of the extension module, contents of the source distribution."""

import importlib
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
    assert "bindings/python/dorajit/nn/linear.py" in wanted
    assert wanted <= files
    assert not [one for one in files if one.startswith(("build/", "benchmarks/results/"))]
