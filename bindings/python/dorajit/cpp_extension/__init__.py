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
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings

from dorajit import _native, errors
from dorajit.cpp_extension import trusted_folder

try:
    import torch
except ImportError as error:
    raise errors.needs_torch("dorajit.cpp_extension", error) from error

_NAME = "dorajit_cpp_extension"
_SOURCES = tuple(pathlib.Path(__file__).absolute().with_name(name)
                 for name in ("module.cc", "call.h", "call_table.h", "held_weights.h", "linear.h", "norms.h"))
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
        elif (refused := _refused()) is not None:
            _warn(f"the C++ extension is not loaded, because {refused} is a link or could have been written by "
                  "other users; calls go through Python. If you trust its contents, change its owner to you and "
                  "chmod 700 it; otherwise remove it and run: python -m dorajit.cpp_extension. Or set "
                  "DORAJIT_CACHE_DIR to a folder of your own")
    except PermissionError:  # the cache folder of another user
        pass
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
        untrusted = _untrusted()
        if untrusted is not None:
            raise _untrusted_error(untrusted)
        path = _find()
        if path is not None and module is None:
            try:
                _use(path)
            except Exception:  # any error: build it again
                _remove(path)
                path = None
        if path is None:
            path = _compile(_compiler())
            _use(path)
    except (OSError, ImportError) as error:
        raise errors.CacheError(f"the C++ extension cannot be stored: {error}; free space there or set "
                                "DORAJIT_CACHE_DIR to a folder of your own", 10) from error
    return str(path)


def _untrusted_error(path):
    return errors.CacheError(f"the C++ extension is not stored in {path}, because other users could replace it there; "
                             "change the owner of the folder to you and chmod 700 it, or set DORAJIT_CACHE_DIR to a "
                             "folder of your own", 10)


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
    file would crash the process. No other user may have been able to write it (docs/security.md)."""
    if not _native.cache_folder() or torch.version.hip is not None:
        return None
    folder = _folder()
    with contextlib.ExitStack() as stack:
        opened = _open_folder(stack, folder)
        if opened is None:
            return None
        for name in sorted(os.listdir(opened)):
            if name.endswith(".so") and _digest_of(opened, name) == name[:-len(".so")]:
                return folder / name
    return None


def _open_folders(stack, folder, enter=trusted_folder.enter):
    """The descriptors of the cache folder, of `cpp_extensions` in it and of the extension's folder, up to the first one
    that is missing or fails the checks. They are opened one after the other, without following links, and each is
    checked through its descriptor."""
    opened = [trusted_folder.open_top(stack, folder.parent.parent)]
    for name in folder.parent.name, folder.name:
        if opened[-1] is not None:
            opened.append(enter(stack, opened[-1], name))
    return [one for one in opened if one is not None]


def _open_folder(stack, folder):
    """The descriptor of the extension's folder, or None."""
    opened = _open_folders(stack, folder)
    return opened[2] if len(opened) == 3 else None


def _first_left_out(folder, opened):
    """The first folder that is not among those of _open_folders; None if all are."""
    return next(iter((folder.parent.parent, folder.parent, folder)[len(opened):]), None)


def _untrusted():
    """The first folder on the path to the extension that fails the checks, or None. Missing folders pass."""
    folder = _folder()
    with contextlib.ExitStack() as stack:
        left_out = _first_left_out(folder, _open_folders(stack, folder))
    return left_out if left_out is not None and os.path.lexists(left_out) else None


def _refused():
    """The first folder or file of an existing extension that fails the checks, so that it is not loaded; or None."""
    if not _native.cache_folder() or torch.version.hip is not None:
        return None
    folder = _folder()
    try:
        files = sorted(name for name in os.listdir(folder) if name.endswith(".so"))
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError):
        return None
    if not files:
        return None
    untrusted = _untrusted()
    if untrusted is not None:
        return untrusted
    with contextlib.ExitStack() as stack:
        opened = _open_folder(stack, folder)
        for name in files if opened is not None else ():
            if trusted_folder.open_file(stack, opened, name) is None:
                return folder / name
    return None


def _read(folder, name):
    """The contents of a file, or None if it is missing or another user could have written it."""
    with contextlib.ExitStack() as stack:
        opened = trusted_folder.open_file(stack, folder, name)
        if opened is None or not stat.S_ISREG(os.fstat(opened).st_mode):
            return None
        with open(opened, "rb", closefd=False) as file:
            return file.read()


def _digest_of(folder, name):
    read = _read(folder, name)
    return None if read is None else _digest(read)


def _digest(content):
    return hashlib.sha256(content).hexdigest()[:32]


def _use(path):
    """Loads the file through the descriptor of its folder, because the path may lead to another folder by now."""
    global module
    with contextlib.ExitStack() as stack:
        folder = _open_folder(stack, path.parent)
        if folder is None or _digest_of(folder, path.name) != path.stem:
            raise ImportError(f"{path} was replaced by another file")
        loader = importlib.machinery.ExtensionFileLoader(_NAME, f"{trusted_folder.held_path(folder)}/{path.name}")
        found = importlib.util.module_from_spec(importlib.util.spec_from_loader(_NAME, loader))
        loader.exec_module(found)
    found.configure(_native.call_table(), _differentiate)
    module = found


def _remove(path):
    with contextlib.ExitStack() as stack:
        folder = _open_folder(stack, path.parent)
        if folder is not None:
            os.unlink(path.name, dir_fd=folder)


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
    with contextlib.ExitStack() as stack:
        around, folder = _make_folders(stack, path)
        _remove_abandoned(around)
        scratch = _make_scratch(stack, path.parent, around)
        log = _run(command, scratch)
        made = _read(scratch, _MADE)
        if made is None:
            raise errors.CompileError(f"{compiler} could not compile the C++ extension for PyTorch "
                                      f"{torch.__version__}; calls go through Python", 6, log)
        name = f"{_digest(made)}.so"
        with contextlib.ExitStack() as file:
            written = trusted_folder.open_file(file, scratch, _MADE)
            os.fchmod(written, 0o644)
            os.fsync(written)
        os.replace(_MADE, name, src_dir_fd=scratch, dst_dir_fd=folder)
    return path / name


def _make_folders(stack, folder):
    """The descriptors of `cpp_extensions` and of the extension's folder in it; missing folders are created."""
    trusted_folder.make_private(folder.parent.parent)
    opened = _open_folders(stack, folder, trusted_folder.make_and_enter)
    if len(opened) < 3:
        raise _untrusted_error(_first_left_out(folder, opened))
    return opened[1:]


def _make_scratch(stack, path, around):
    """The descriptor of a new folder, which is removed when the stack is closed."""
    made = stack.enter_context(tempfile.TemporaryDirectory(prefix=_SCRATCH,
                                                           dir=trusted_folder.held_path(around)))
    opened = trusted_folder.enter(stack, around, os.path.basename(made))
    if opened is None:
        raise _untrusted_error(path)
    return opened


def _remove_abandoned(folder):
    """Removes scratch folders of processes that were killed."""
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            if (name.startswith(_SCRATCH)
                    and time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
                    > _LONGEST_BUILD_S):
                shutil.rmtree(f"{trusted_folder.held_path(folder)}/{name}")


def _run(command, folder):
    """Runs the compiler in the folder. Returns its command and output; if it failed, its output file is removed."""
    try:
        done = subprocess.run(command, cwd=trusted_folder.held_path(folder), env={**os.environ, "TMPDIR": "."},
                              umask=0o077, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", check=False)
    except OSError as error:
        raise errors.NoCompilerError(f"{command[0]} cannot be run ({error.strerror}); set DORAJIT_CXX to a "
                                     "C++20 compiler", 5) from error
    if done.returncode != 0:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_MADE, dir_fd=folder)
    return f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
