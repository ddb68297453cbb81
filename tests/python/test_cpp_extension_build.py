"""Building the C++ extension, finding it, and refusing untrusted or damaged files."""

import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

import dorajit
import processes
from dorajit import _native, cpp_extension
from dorajit.layers import linear
from dorajit.operations import eligibility

_USE = """
from dorajit import cpp_extension
from dorajit.layers import linear
magnitude = torch.ones(8).requires_grad_()
out = dorajit.dora_linear(lora, torch.randn(8, 32), torch.randn(2, 32), torch.randn(8, 2), magnitude, 0.5)
out.sum().backward()
print(cpp_extension.module is not None, out.grad_fn.name().rpartition(":")[2])
"""


QUIETLY = "import warnings; warnings.simplefilter('ignore')\n" + processes._START
WARNINGS = """
import warnings
with warnings.catch_warnings(record=True) as said:
    import dorajit
print(*(str(one.message) for one in said))
"""
WITHOUT = "False DoraLinearBackward"
WITH = "True DoraLinear>"


def make(folder, compiler=None):
    """The path that the command prints."""
    variables = {**os.environ, "DORAJIT_LOG": "error", "DORAJIT_CACHE_DIR": str(folder)}
    variables.pop("DORAJIT_CXX")
    if compiler is not None:
        variables["DORAJIT_CXX"] = str(compiler)
    done = subprocess.run([sys.executable, "-m", "dorajit.cpp_extension"], env=variables,
                          capture_output=True, text=True, check=True)
    return pathlib.Path(done.stdout.strip())


def used(folder, program=_USE, **how):
    return processes.run(program, DORAJIT_CACHE_DIR=str(folder), **how)


@pytest.fixture
def copying(compiled_extension, tmp_path):
    """A fast fake compiler: it copies the file that the session compiled, with the permissions of the umask."""
    shutil.copy(cpp_extension._find(), tmp_path / "whole.so")
    compiler = tmp_path / "copying"
    compiler.write_text(f'#!/bin/sh\nfor last; do :; done\ncat {tmp_path}/whole.so > "$last" && chmod +x "$last"\n')
    compiler.chmod(0o755)
    return compiler


def test_build_makes_extension_that_later_processes_load(copying, tmp_path):
    cache = tmp_path / "cache"
    assert used(cache) == WITHOUT
    shutil.rmtree(cache, ignore_errors=True)
    umask = os.umask(0o002)
    try:
        file = make(cache, copying)
    finally:
        os.umask(umask)
    for folder in (cache, cache / "cpp_extensions", file.parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    made = file.stat().st_mtime_ns
    assert make(cache) == file and file.stat().st_mtime_ns == made
    assert os.listdir(cache / "cpp_extensions") == [file.parent.name]
    for program in (_USE, "import os; os.fork() or os._exit(0)\n" + _USE, _USE + "kept = out * 2"):
        assert WITH in used(cache, program)


def test_build_removes_files_of_killed_builds(copying, tmp_path):
    folder = tmp_path / "cache" / "cpp_extensions"
    old, recent = (folder / f".building-{name}" for name in ("old", "recent"))
    for one in old, recent:
        one.mkdir(parents=True)
        (one / "made.so").touch()
    two_hours_ago = time.time() - 7200
    os.utime(old, (two_hours_ago, two_hours_ago))
    make(tmp_path / "cache", copying)
    assert recent.is_dir() and not old.exists()


def test_build_does_not_touch_a_folder_that_replaced_its_own(copying, tmp_path, monkeypatch):
    """A user who may write the folder above moves the cache folder away while the compiler runs."""
    monkeypatch.setattr(cpp_extension, "module", None)
    monkeypatch.setenv("DORAJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DORAJIT_CXX", str(tmp_path / "moving"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    moving = tmp_path / "moving"
    moving.write_text(f"""#!/bin/sh
cp -r {tmp_path}/cache {tmp_path}/other
for folder in {tmp_path}/other/cpp_extensions/.building-*; do touch "$folder/mark"; done
mv {tmp_path}/cache {tmp_path}/moved && ln -s other {tmp_path}/cache
mktemp > {tmp_path}/temporary
exec {copying} "$@"
""")
    moving.chmod(0o755)
    with pytest.raises(dorajit.CacheError, match="was replaced by another file"):
        cpp_extension.build()
    assert cpp_extension.module is None
    assert not list((tmp_path / "other").rglob("*.so"))
    assert list((tmp_path / "other").rglob("mark"))
    made = list((tmp_path / "moved").rglob("*.so"))
    assert [file.parent.parent for file in made] == [tmp_path / "moved" / "cpp_extensions"]
    assert not list((tmp_path / "moved" / "cpp_extensions").glob(".building-*"))
    assert (tmp_path / "temporary").read_text().startswith("./")


def test_build_creates_parent_folders_private_to_this_user(copying, tmp_path):
    umask = os.umask(0)
    try:
        make(tmp_path / "a" / "b" / "cache", copying)
    finally:
        os.umask(umask)
    for folder in "a", "a/b", "a/b/cache", "a/b/cache/cpp_extensions":
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


@pytest.fixture
def kept(compiled_extension, tmp_path):
    """(a cache folder with only a copy of the file, the path of the copy)."""
    file = cpp_extension._find()
    copy = tmp_path / "cache" / "cpp_extensions" / file.parent.name / file.name
    copy.parent.mkdir(parents=True)
    shutil.copy(file, copy)
    for folder in copy.parent, copy.parent.parent:
        folder.chmod(0o700)
    return tmp_path / "cache", copy


def test_truncated_file_is_not_loaded_and_rebuilt(kept, copying):
    cache, file = kept
    whole = file.read_bytes()
    assert used(cache) == WITH
    for size in 0, 64, 4096, len(whole) // 2, len(whole) - 1:
        file.write_bytes(whole[:size])
        assert used(cache) == WITHOUT
    assert make(cache, copying).parent == file.parent
    assert used(cache) == WITH


def test_file_that_is_no_extension_module_warns(kept, copying):
    cache, file = kept
    file.write_bytes(b"\x7fELF nonsense")
    wrong = file.rename(file.with_name(f"{cpp_extension._digest(file.read_bytes())}.so"))
    assert used(cache, start=QUIETLY) == WITHOUT
    printed = used(cache, WARNINGS, start="")
    assert str(wrong) in printed and "python -m dorajit.cpp_extension" in printed
    file = make(cache, copying)
    assert not wrong.exists() and used(cache) == WITH


def test_file_writable_by_others_is_not_loaded_and_warns(kept):
    cache, file = kept

    def is_refused(path):
        printed = used(cache, WARNINGS, start="")
        assert f"not loaded, because {path} " in printed and "DORAJIT_CACHE_DIR" in printed
        assert any(remedy in printed for remedy in ("chmod g", "chown", "put what it leads to in its place"))
        return used(cache, start=QUIETLY) == WITHOUT

    for path, mode in ((file, 0o666), (file.parent, 0o770), (file.parent.parent, 0o707), (cache, 0o707),
                       (cache, 0o1777), (cache, 0o770)):
        before = path.stat().st_mode & 0o777
        path.chmod(mode)
        assert is_refused(path)
        path.chmod(before)
    cache.chmod(0o770)
    assert used(cache, DORAJIT_TRUST_GROUP="1") == WITH
    cache.chmod(0o700)
    elsewhere = cache.with_name("elsewhere")
    for path in file, file.parent, file.parent.parent:
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        assert is_refused(path)
        path.unlink()
        elsewhere.rename(path)
    assert used(cache) == WITH
    if os.geteuid() == 0:  # root may change owners of files and user ids
        os.chown(file, 12345, 12345)
        assert is_refused(file)
        os.chown(file, 0, 0)
        os.chown(cache, 12345, 12345)
        assert is_refused(cache)
        os.chown(cache, 0, 0)
        own = "import os; os.seteuid(12345)\nfrom dorajit import cpp_extension\nfrom dorajit.layers import linear\n"
        program = own + "cpp_extension.module = None; cpp_extension.load(None); print(cpp_extension.module)"
        assert used(cache, program) == "None"


def test_import_with_warnings_as_errors_succeeds(kept):
    cache, file = kept
    assert used(cache, arguments=["-W", "error"]) == WITH

    def imports(expected):
        variables = {**os.environ, "DORAJIT_CACHE_DIR": str(cache), "DORAJIT_LOG": "error"}
        done = subprocess.run([sys.executable, "-W", "error", "-c", "import torch, dorajit"], env=variables,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("dorajit: the C++ extension ") and expected in done.stderr
        assert done.stderr.count("\n") == 1

    file.chmod(0o666)
    imports(f"not loaded, because {file}")
    file.chmod(0o600)
    file.write_bytes(b"\x7fELF nonsense")
    wrong = file.rename(file.with_name(f"{cpp_extension._digest(file.read_bytes())}.so"))
    imports(f"{wrong} cannot be loaded")


@pytest.mark.parametrize("around, group, made", [(0o2770, "1", 0o2770), (0o770, "1", 0o770), (0o700, "1", 0o700),
                                                 (0o2700, "0", 0o700)])
def test_made_folder_is_group_writable_only_in_trusted_group_folder(tmp_path, monkeypatch, around, group, made):
    monkeypatch.setenv("DORAJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("DORAJIT_TRUST_GROUP", group)
    tmp_path.chmod(around)
    folder = tmp_path / "cpp_extensions"
    assert _native.extension_folder("", True) is not None
    expected = made | around & 0o2000  # folders inherit the setgid bit
    assert folder.stat().st_mode & 0o7777 == expected
    folder.chmod(0o500)
    assert _native.extension_folder("", True) is not None
    assert folder.stat().st_mode & 0o777 == 0o500


def test_untrusted_folder_without_extension_does_not_warn(kept):
    cache, file = kept
    file.unlink()
    cache.chmod(0o707)
    assert used(cache, WARNINGS, start="") == ""


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_extension_compiles_without_warnings(compiler, monkeypatch, tmp_path):
    found = next(filter(None, map(shutil.which, (compiler, f"{compiler}-19"))), None)
    if found is None:
        pytest.skip(f"{compiler} is not installed")
    strict = tmp_path / "strict"
    strict.write_text(f'#!/bin/sh\nexec {found} -Werror -O0 "$@"\n')
    strict.chmod(0o755)
    monkeypatch.setenv("DORAJIT_CXX", str(strict))
    monkeypatch.setenv("DORAJIT_CACHE_DIR", str(tmp_path))
    assert cpp_extension._compile(cpp_extension._compiler()) == cpp_extension._find()


def test_build_failures_raise_errors_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(cpp_extension, "module", None)
    monkeypatch.setenv("DORAJIT_CACHE_DIR", str(tmp_path / "cache"))
    for wanted in "none", str(tmp_path / "nowhere"):
        monkeypatch.setenv("DORAJIT_CXX", wanted)
        with pytest.raises(dorajit.NoCompilerError, match="DORAJIT_CXX"):
            cpp_extension.build()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with monkeypatch.context() as patch:
        patch.setenv("DORAJIT_CACHE_DIR", str(tmp_path / "open"))
        with pytest.raises(dorajit.CacheError, match=f"{tmp_path}/open can be written by every user.*chmod go-w"):
            cpp_extension.build()
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    monkeypatch.setenv("DORAJIT_CXX", str(tmp_path / "text"))
    with pytest.raises(dorajit.NoCompilerError, match="cannot be run"):
        cpp_extension.build()
    compiler = tmp_path / "c++"
    for ending in "printf 'no such \\377 luck' >&2; exit 1", "echo no such luck":
        compiler.write_text(f"#!/bin/sh\n{ending}\n")
        compiler.chmod(0o755)
        monkeypatch.setenv("DORAJIT_CXX", str(compiler))
        with pytest.raises(dorajit.CompileError, match="through Python") as raised:
            cpp_extension.build()
        assert "no such" in raised.value.log and "-std=c++20" in raised.value.log
    assert not list((tmp_path / "cache" / "cpp_extensions").glob(".building*"))
    with monkeypatch.context() as patch:
        patch.setenv("DORAJIT_TUNE", "sometimes")
        with pytest.raises(dorajit.InvalidArgumentError, match="DORAJIT_TUNE"):
            cpp_extension.build()
        cpp_extension.load(linear.differentiate)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DORAJIT_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(dorajit.CacheError, match="DORAJIT_CACHE_DIR"):
        cpp_extension.build()
    for name in "DORAJIT_CACHE_DIR", "XDG_CACHE_HOME", "HOME":
        monkeypatch.setenv(name, "")
    with pytest.raises(dorajit.CacheError, match="no cache folder"):
        cpp_extension.build()
    assert cpp_extension.module is None
    done = subprocess.run([sys.executable, "-m", "dorajit.cpp_extension"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 1 and "DORAJIT_CACHE_DIR" in done.stderr
    assert "Traceback" not in done.stderr
