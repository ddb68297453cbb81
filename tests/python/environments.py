"""Virtual environments in which the package is installed, and programs in them."""

import os
import pathlib
import subprocess
import sys
import venv

import dorajit

SITE = pathlib.Path(dorajit.__file__).parents[1]


def make(folder):
    """The interpreter of a new environment whose `site` finds the package, as installed, and the packages of this
    interpreter. It runs the package's .pth file twice, as nested environments do."""
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    folders = [SITE, SITE, *(one for one in sys.path if one.endswith("-packages"))]
    (packages / "all.pth").write_text("".join(f"import site; site.addsitedir({str(one)!r}, set())\n" for one in folders))
    return folder / "bin" / "python"


def run(interpreter, *words, folder=None, value="1", **variables):
    """The finished process, which must succeed, with DORAJIT_PATCH_PEFT=value and modules of a folder."""
    path = [str(one) for one in (folder, os.environ.get("PYTHONPATH")) if one]
    variables |= {"PATH": "/usr/bin:/bin", "DORAJIT_TUNE": "off", "DORAJIT_CXX": "none", "DORAJIT_LOG": "error",
                  "DORAJIT_CACHE_DIR": os.environ["DORAJIT_CACHE_DIR"], "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
                  "PYTHONPATH": os.pathsep.join(path)}
    if value is not None:
        variables["DORAJIT_PATCH_PEFT"] = value
    done = subprocess.run([interpreter, *words], env=variables, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done
