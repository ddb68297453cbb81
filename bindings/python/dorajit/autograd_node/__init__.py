"""The composition's node of autograd's graph, compiled against the PyTorch that is loaded.

    python -m dorajit.autograd_node

The nodes of dorajit.autograd are in Python, as the package is compiled without any PyTorch; of a call
on small tensors most of the time is then the interpreter's, in the backward pass on a thread of its
own. `build()` compiles the same in C++, once for each version of PyTorch, and keeps it in the cache
folder; whatever imports dorajit afterwards finds it. Results are the same to the bit.
"""

import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
import warnings

try:
    import torch
except ImportError:
    raise ImportError("dorajit.autograd_node needs PyTorch, which is not installed here: pip install "
                      "torch") from None

from dorajit import _native, errors

_NAME = "dorajit_autograd_node"
_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
_SOURCES = tuple(pathlib.Path(__file__).with_name(name) for name in ("node.cc", "calls.h"))

# The module that was compiled, or None: what `load` and `build` leave here is in force.
module = None
_differentiate = None


def load(differentiate):
    """Takes what `build` has made, if it has; never fails.

    Args:
        differentiate: the backward pass where the node may not do it (dorajit.autograd).
    """
    global _differentiate
    _differentiate = differentiate
    path = None
    try:
        path = _path()
        if path is not None and path.exists():
            _use(path)
    except (ImportError, OSError) as error:
        warnings.warn(f"the autograd node {path or ''} cannot be loaded ({error}); backward passes run through "
                      "Python. Delete the file and run: python -m dorajit.autograd_node", RuntimeWarning,
                      stacklevel=2)


def build() -> str:
    """Compiles the node, unless that is done already, and uses it from now on in this process too.

    Takes a C++20 compiler (DORAJIT_CXX, else the first of c++, g++, clang++ on PATH), the headers of
    PyTorch's wheel and those of Python, and some twenty seconds.

    Returns:
        The path of the file, in the folder `autograd_nodes` of the cache folder.

    Raises:
        dorajit.NoCompilerError: there is no compiler.
        dorajit.CompileError: the compiler refused; `log` has what it said.
        dorajit.CacheError: the file cannot be written.
    """
    path = _path()
    if path is None:
        raise errors.CacheError("the autograd node has no folder to be kept in: set DORAJIT_CACHE_DIR to the "
                                "absolute path of one", 10)
    if not path.exists():
        _compile(_compiler(), path)
    try:
        _use(path)
    except (ImportError, OSError) as error:
        raise errors.CacheError(f"{path} cannot be loaded: {error}; delete it and try again", 10) from error
    return str(path)


def _path():
    """Of the node for this PyTorch and this Python; None where nothing is kept on disk."""
    folder = _native.cache_folder()
    if not folder or torch.version.hip is not None:
        return None
    key = hashlib.sha256()
    for part in (*(source.read_bytes() for source in _SOURCES), torch.__version__.encode(),
                 str(torch.version.git_version).encode()):
        key.update(len(part).to_bytes(8, "little") + part)
    return pathlib.Path(folder, "autograd_nodes", key.hexdigest()[:16], _NAME + _SUFFIX)


def _use(path):
    global module
    owner = os.stat(path).st_uid
    if owner not in (0, os.geteuid()):
        raise ImportError(f"it belongs to user {owner}")
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(path))
    found = importlib.util.module_from_spec(importlib.util.spec_from_loader(_NAME, loader))
    loader.exec_module(found)
    found.configure(_native.node_calls(), _differentiate)
    module = found


def _compiler():
    wanted = os.environ.get("DORAJIT_CXX")
    names = (wanted,) if wanted else ("c++", "g++", "clang++")
    found = None if wanted == "none" else next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise errors.NoCompilerError("the autograd node needs a C++20 compiler: install g++, or set "
                                     "DORAJIT_CXX to one", 5)
    return found


def _compile(compiler, path):
    root = pathlib.Path(torch.__file__).parent
    headers = root / "include", sysconfig.get_path("include")
    command = [compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra",
               f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
               *(flag for folder in headers for flag in ("-isystem", str(folder))), str(_SOURCES[0]),
               f"-L{root / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10", "-o"]
    try:
        path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=path.parent.parent) as scratch:
            made = os.path.join(scratch, path.name)
            done = subprocess.run([*command, made], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise errors.CompileError(f"{compiler} refused the autograd node for PyTorch "
                                          f"{torch.__version__}; calls go through Python as before", 6,
                                          f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
            path.parent.mkdir(exist_ok=True)
            os.replace(made, path)
    except OSError as error:
        raise errors.CacheError(f"the autograd node cannot be written: {error}; free space there or set "
                                "DORAJIT_CACHE_DIR to a folder of your own", 10) from error
