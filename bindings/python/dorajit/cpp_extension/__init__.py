"""The autograd node of a linear layer in C++, compiled against the installed PyTorch.

    python -m dorajit.cpp_extension

The package is compiled without PyTorch, so its autograd nodes are in Python. For a call on small tensors most of
the time is then the interpreter's; a GPU's backward pass runs it on a separate thread.
`build()` compiles the node of a linear layer in C++, once for each version of PyTorch, and stores the
result in the cache folder, where processes that import dorajit later find it. Results are bit-identical.
"""

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings

from dorajit import _native, errors

try:
    import torch
except ImportError as error:
    raise errors.needs_torch("dorajit.cpp_extension", error) from error

_NAME = "dorajit_cpp_extension"
_SOURCES = tuple(pathlib.Path(__file__).absolute().with_name(name)
                 for name in ("module.cc", "call.h", "call_table.h", "linear.h", "norms.h", "saved_output.h"))
_LONGEST_BUILD_S = 3600
_SCRATCH = ".building-"
_MADE = "made.so"

# The compiled module, set by `load` and `build`; None if there is none.
module = None
_differentiate = None


def load(differentiate):
    """Loads the extension if `build` has made it; never raises.

    Args:
        differentiate: the backward pass for cases that the extension leaves to Python (dorajit.layers.linear).
    """
    global _differentiate
    _differentiate = differentiate
    path = None
    try:
        path = _find()
        if path is not None:
            _use(path)
    except errors.CacheError as error:
        if _is_made():
            _warn(f"the C++ extension is not loaded, because {error}; calls go through Python")
    except errors.Error:  # a variable is invalid, which the first call will report
        pass
    except Exception as error:  # any error: calls can go through Python
        _warn(f"the C++ extension {path} cannot be loaded ({error!r}); calls go through Python. Run: "
              "python -m dorajit.cpp_extension")


def _warn(text):
    """Issues a RuntimeWarning. If warnings are errors (python -W error), writes the text to standard error instead, so
    that the import does not fail."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        print(f"dorajit: {text}", file=sys.stderr)


def build() -> str:
    """Compiles the extension, unless it exists already, and loads it into this process.

    Needs a C++20 compiler (DORAJIT_CXX, else the first of c++, g++, clang++ on PATH), the headers of
    PyTorch's wheel and those of Python; takes some twenty seconds.

    Returns:
        The path of the file, in the folder `cpp_extensions` of the cache folder.

    Raises:
        dorajit.NoCompilerError: there is no compiler.
        dorajit.CompileError: the compiler failed; `log` has its output.
        dorajit.CacheError: the file cannot be written.
        dorajit.UnsupportedError: PyTorch is a build for ROCm.
    """
    if torch.version.hip is not None:
        raise errors.UnsupportedError("the C++ extension does not support PyTorch's build for ROCm",
                                      errors.UNSUPPORTED)
    if not _native.cache_folder():
        raise errors.CacheError("the C++ extension cannot be stored, because there is no cache folder: set "
                                "DORAJIT_CACHE_DIR to the absolute path of a folder", 10)
    try:
        path = _find()
        if path is not None and module is None:
            try:
                _use(path)
            except Exception:  # any error: build it again
                path.unlink(missing_ok=True)
                path = None
        if path is None:
            path = _compile(_compiler())
            _use(path)
    except (OSError, ImportError) as error:
        raise errors.CacheError(f"the C++ extension cannot be stored: {error}; free space there or set "
                                "DORAJIT_CACHE_DIR to a folder of your own", 10) from error
    return str(path)


def _folder():
    """The folder of the extension, named by a hash of its sources and of the versions of PyTorch, Python and the C
    library."""
    key = hashlib.sha256()
    for part in (*(source.read_bytes() for source in _SOURCES), torch.__version__.encode(),
                 str(torch.version.git_version).encode(), sysconfig.get_config_var("EXT_SUFFIX").encode(),
                 os.confstr("CS_GNU_LIBC_VERSION").encode()):
        key.update(len(part).to_bytes(8, "little") + part)
    return pathlib.Path(_native.cache_folder()) / "cpp_extensions" / key.hexdigest()[:16]


def _find():
    """The path of the file, or None. The file's name must be the hash of its contents, because loading a truncated
    file would crash the process.

    Raises:
        dorajit.CacheError: another user could have written the file or a folder above it (docs/security.md).
    """
    if not _native.cache_folder() or torch.version.hip is not None:
        return None
    path = _folder()
    folder = _native.extension_folder(path.name, False)
    return next((path / name for name in _files(folder and folder.descriptor) if _is_whole(folder, name)), None)


def _is_made():
    """Whether there is a file of the extension, trusted or not."""
    with contextlib.suppress(OSError, UnicodeEncodeError):
        return bool(_files(_folder()))


def _files(folder):
    """The names of the extension's files in a folder, which may be None."""
    return [] if folder is None else sorted(name for name in os.listdir(folder) if name.endswith(".so"))


def _is_whole(folder, name):
    read = folder.read(name)
    return read is not None and name == f"{_digest(read)}.so"


def _digest(content):
    return hashlib.sha256(content).hexdigest()[:32]


def _use(path):
    """Loads the file through the descriptor of its folder, because the path may lead to another folder by now."""
    global module
    folder = _native.extension_folder(path.parent.name, False)
    if folder is None or not _is_whole(folder, path.name):
        raise ImportError(f"{path} was replaced by another file")
    loader = importlib.machinery.ExtensionFileLoader(_NAME, f"{folder.held_path}/{path.name}")
    found = importlib.util.module_from_spec(importlib.util.spec_from_loader(_NAME, loader))
    loader.exec_module(found)
    found.configure(_native.call_table(), _differentiate)
    module = found


def _compiler():
    wanted = os.environ.get("DORAJIT_CXX")
    names = (wanted,) if wanted else ("c++", "g++", "clang++")
    found = None if wanted == "none" else next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise errors.NoCompilerError("the C++ extension needs a C++20 compiler: install g++, or set "
                                     "DORAJIT_CXX to one", 5)
    return os.path.abspath(found)  # absolute, because it runs in another working directory


def _compile(compiler):
    """Compiles the extension and returns the path of the file. The compiler runs in a folder below the checked
    folders, which stay open: a folder that replaces one of them is neither read nor written."""
    root = pathlib.Path(torch.__file__).absolute().parent
    headers = root / "include", sysconfig.get_path("include")
    command = [compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra",
               f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
               *(flag for folder in headers for flag in ("-isystem", str(folder))), str(_SOURCES[0]),
               f"-L{root / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10", "-o", _MADE]
    path = _folder()
    around, folder = (_native.extension_folder(name, True) for name in ("", path.name))
    _remove_abandoned(around.held_path)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=around.held_path) as scratch:
        made = pathlib.Path(scratch, _MADE)
        is_done, log = _run(command, scratch)
        if not is_done or not made.is_file():
            raise errors.CompileError(f"{compiler} could not compile the C++ extension for PyTorch "
                                      f"{torch.__version__}; calls go through Python", 6, log)
        with open(made, "rb") as file:
            name = f"{_digest(file.read())}.so"
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.replace(made, name, dst_dir_fd=folder.descriptor)
    return path / name


def _remove_abandoned(folder):
    """Removes scratch folders of processes that were killed."""
    for one in pathlib.Path(folder).glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            if time.time() - one.lstat().st_mtime > _LONGEST_BUILD_S:
                shutil.rmtree(one)


def _run(command, folder):
    """(whether the compiler succeeded, its command and output), run in the folder."""
    try:
        done = subprocess.run(command, cwd=folder, env={**os.environ, "TMPDIR": "."},
                              umask=0o077, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", check=False)
    except OSError as error:
        raise errors.NoCompilerError(f"{command[0]} cannot be run ({error.strerror}); set DORAJIT_CXX to a "
                                     "C++20 compiler", 5) from error
    return done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
