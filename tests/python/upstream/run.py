"""Runs the DoRA tests of PEFT's source distribution under dorajit.patch_peft().

    python tests/python/upstream/run.py FOLDER [ARGUMENT OF PYTEST...]

The distribution of the PEFT that is installed is fetched by pip, once, into FOLDER. Without arguments that
name tests all that are about DoRA run; `--unpatched` runs them without the patch, for comparison.
"""

import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

_HERE = pathlib.Path(__file__).resolve().parent
FILES = ("test_custom_models", "test_lora_variants", "test_initialization", "test_helpers", "test_decoder_models")
NOT_TO_BE_HAD = 77


def tests_of(version, folder):
    """The folder with `tests/` of a version of PEFT; it is fetched if it is missing.

    Raises:
        OSError: it cannot be had.
    """
    whole = folder / f"peft-{version}"
    if (whole / "tests" / "__init__.py").exists():
        return whole
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fetched = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
             "--retries", "0", "--timeout", "15", "--no-deps",
             "--no-binary", ":all:", "--dest", scratch, f"peft=={version}"],
            stderr=subprocess.PIPE, text=True, check=False)
        archives = list(pathlib.Path(scratch).glob("*.tar.gz"))
        if fetched.returncode or not archives:
            raise OSError(f"PEFT {version} cannot be fetched: {fetched.stderr.strip()[-300:]}")
        with tarfile.open(archives[0]) as archive:
            wanted = [one for one in archive if one.isfile() and "/tests/" in one.name]
            if not wanted:
                raise OSError(f"the source distribution of PEFT {version} holds no tests")
            archive.extractall(scratch, members=wanted, filter="data")
        made = pathlib.Path(scratch) / f"peft-{version}"
        # The distribution does not contain __init__.py, but the test modules use relative imports.
        (made / "tests" / "__init__.py").touch()
        if not whole.exists():
            os.rename(made, whole)
    return whole


def main(folder, arguments):
    import peft
    try:
        whole = tests_of(peft.__version__, pathlib.Path(folder).resolve())
    except OSError as error:
        print(error, file=sys.stderr)
        return NOT_TO_BE_HAD
    if not any("test_" in one and ".py" in one for one in arguments):
        arguments = [*(f"tests/{name}.py" for name in FILES), *arguments]
    if "-k" not in arguments:
        # One test expects that a batch of DoRA adapters is refused; the patch computes it.
        arguments = ["-k", "dora and not lora_with_dora_raises", *arguments]
    paths = [str(_HERE), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)),
                                "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
                                "DORAJIT_TUNE": "off", "DORAJIT_CACHE_DIR": str(whole / "cache"),
                                "DORAJIT_CXX": os.environ.get("DORAJIT_CXX", "none")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "native_path", "-p", "no:cacheprovider",
         "-o", "addopts=", "--rootdir", str(whole), "-W", "ignore", *arguments],
        cwd=whole, env=environment, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
