"""The calls that PyTorch's C++ interface makes cheaper, compiled against the PyTorch that is loaded.

    python -m dorajit.cpp_extension

The package is compiled without any PyTorch. Its nodes of autograd's graph are therefore in Python, and of a
call on small tensors most of the time is the interpreter's, in a GPU's backward pass on a thread of its own.
`build()` compiles the node of a linear layer in C++, once for each version of PyTorch, and keeps the
result in the cache folder; whatever imports dorajit afterwards finds it. Results are the same to the bit.
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
                 for name in ("module.cc", "call.h", "call_table.h", "eligibility.h", "held_weights.h", "linear.h",
                              "norms.h"))
_LONGEST_BUILD_S = 3600
_SCRATCH = ".building-"
_MADE = "made.so"

# The module that was compiled, or None: what `load` and `build` leave here is in force.
module = None
_differentiate = None


def load(differentiate):
    """Takes what `build` has made, if it has; never fails.

    Args:
        differentiate: the backward pass where the extension may not do it (dorajit.layers.linear).
    """
    global _differentiate
    _differentiate = differentiate
    path = None
    try:
        path = _find()
        if path is not None:
            _use(path)
        elif (refused := _refused()) is not None:
            _warn(f"the C++ extension is not loaded, since {refused} is a link or others could have put code "
                  "there; calls go through Python. If you trust what is in it, make it yours and chmod 700 it; "
                  "else remove it and run: python -m dorajit.cpp_extension. Or set DORAJIT_CACHE_DIR to a "
                  "folder of your own")
    except PermissionError:  # a cache folder of somebody else
        pass
    except errors.Error:  # the environment is wrong, of which the first call will tell
        pass
    except Exception as error:  # whatever it is, calls have another way
        _warn(f"the C++ extension {path} cannot be loaded ({error!r}); calls go through Python as before. Run: "
              "python -m dorajit.cpp_extension")


def _warn(text):
    """Where warnings are errors (python -W error) the text goes to standard error: importing does not fail."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        print(f"dorajit: {text}", file=sys.stderr)


def build() -> str:
    """Compiles the extension, unless that is done already, and uses it from now on in this process too.

    Takes a C++20 compiler (DORAJIT_CXX, else the first of c++, g++, clang++ on PATH), the headers of
    PyTorch's wheel and those of Python, and some twenty seconds.

    Returns:
        The path of the file, in the folder `cpp_extensions` of the cache folder.

    Raises:
        dorajit.NoCompilerError: there is no compiler.
        dorajit.CompileError: the compiler refused; `log` has what it said.
        dorajit.CacheError: the file cannot be written.
        dorajit.UnsupportedError: this PyTorch is one for AMD's GPUs.
    """
    if torch.version.hip is not None:
        raise errors.UnsupportedError("the C++ extension does not serve PyTorch's build for ROCm",
                                      errors.UNSUPPORTED)
    if not _native.cache_folder():
        raise errors.CacheError("the C++ extension has no folder to be kept in: set DORAJIT_CACHE_DIR to the "
                                "absolute path of one", 10)
    try:
        untrusted = _untrusted()
        if untrusted is not None:
            raise _untrusted_error(untrusted)
        path = _find()
        if path is not None and module is None:
            try:
                _use(path)
            except Exception:  # whatever it is, it will not do
                _remove(path)
                path = None
        if path is None:
            path = _compile(_compiler())
            _use(path)
    except (OSError, ImportError) as error:
        raise errors.CacheError(f"the C++ extension cannot be kept: {error}; free space there or set "
                                "DORAJIT_CACHE_DIR to a folder of your own", 10) from error
    return str(path)


def _untrusted_error(path):
    return errors.CacheError(f"the C++ extension is not kept in {path}, where others could put code in its place; "
                             "make it yours and chmod 700 it, or set DORAJIT_CACHE_DIR to a folder of your own", 10)


def _folder():
    """Of the extension for this PyTorch, Python and C library, named by what it is compiled from and for."""
    key = hashlib.sha256()
    for part in (*(source.read_bytes() for source in _SOURCES), torch.__version__.encode(),
                 str(torch.version.git_version).encode(), sysconfig.get_config_var("EXT_SUFFIX").encode(),
                 os.confstr("CS_GNU_LIBC_VERSION").encode()):
        key.update(len(part).to_bytes(8, "little") + part)
    return _cache_folder() / "cpp_extensions" / key.hexdigest()[:16]


def _cache_folder():
    return pathlib.Path(_native.cache_folder())


def _find():
    """The file, or None. Only a whole one, whose name says what is in it: PyTorch's process would not
    survive the loading of a part. Only one that nobody else could have written (docs/security.md)."""
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


def _open_folder(stack, folder):
    """The descriptor of the extension's folder, or None: the cache folder and those below it are opened one in
    the other, without following links, and each is checked through its descriptor."""
    opened = trusted_folder.open_top(stack, folder.parent.parent)
    for name in folder.parent.name, folder.name:
        if opened is not None:
            opened = trusted_folder.enter(stack, opened, name)
    return opened


def _untrusted():
    """The first of the folders down to the extension's that does not pass, or None. What is missing passes."""
    folder = _folder()
    with contextlib.ExitStack() as stack:
        opened = None
        for path in folder.parent.parent, folder.parent, folder:
            if not os.path.lexists(path):
                return None
            if opened is None:
                opened = trusted_folder.open_top(stack, path)
            else:
                opened = trusted_folder.enter(stack, opened, path.name)
            if opened is None:
                return path
    return None


def _refused():
    """What keeps an extension that is there from being loaded: the first of its folders and files that does not
    pass, or None."""
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
    """What is in a file that nobody else could have written, or None."""
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
    """Loads the file through the descriptor of its folder, whose name another one may have by now."""
    global module
    with contextlib.ExitStack() as stack:
        folder = _open_folder(stack, path.parent)
        if folder is None or _digest_of(folder, path.name) != path.stem:
            raise ImportError(f"{path} was exchanged meanwhile")
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
    return os.path.abspath(found)  # it runs in another folder


def _compile(compiler):
    """The path of the file that is made. The compiler runs in a folder below the ones that were checked, which are
    held open: what takes one of their names meanwhile is neither read nor written."""
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
            raise errors.CompileError(f"{compiler} refused the C++ extension for PyTorch {torch.__version__}; "
                                      "calls go through Python as before", 6, log)
        name = f"{_digest(made)}.so"
        with contextlib.ExitStack() as file:
            written = trusted_folder.open_file(file, scratch, _MADE)
            os.fchmod(written, 0o644)
            os.fsync(written)
        os.replace(_MADE, name, src_dir_fd=scratch, dst_dir_fd=folder)
    return path / name


def _make_folders(stack, folder):
    """The descriptors of `cpp_extensions` and of the extension's folder in it, made where they are missing."""
    trusted_folder.make_private(folder.parent.parent)
    opened = trusted_folder.open_top(stack, folder.parent.parent)
    if opened is None:
        raise _untrusted_error(folder.parent.parent)
    made = []
    for path in folder.parent, folder:
        opened = trusted_folder.make_and_enter(stack, opened, path.name)
        if opened is None:
            raise _untrusted_error(path)
        made.append(opened)
    return made


def _make_scratch(stack, path, around):
    """The descriptor of a new folder, which is removed in the end."""
    made = stack.enter_context(tempfile.TemporaryDirectory(prefix=_SCRATCH,
                                                           dir=trusted_folder.held_path(around)))
    opened = trusted_folder.enter(stack, around, os.path.basename(made))
    if opened is None:
        raise _untrusted_error(path)
    return opened


def _remove_abandoned(folder):
    """The scratch folders of processes that were killed."""
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            if (name.startswith(_SCRATCH)
                    and time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
                    > _LONGEST_BUILD_S):
                shutil.rmtree(f"{trusted_folder.held_path(folder)}/{name}")


def _run(command, folder):
    """What a compiler says that runs in the folder, its command first; what it made is removed if it failed."""
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
