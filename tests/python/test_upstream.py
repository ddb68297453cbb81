"""A quick part of PEFT's own DoRA tests, with the patch; `./dev pytest --upstream` runs all of them."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "upstream"))

import run

# Test modules that are collected quickly and run layers of all kinds.
QUICK = ["tests/test_lora_variants.py", "tests/test_helpers.py"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder for PEFT's distribution: that of `./dev` if it is set, else a temporary one."""
    given = os.environ.get("DORAJIT_UPSTREAM")
    return pathlib.Path(given) if given else tmp_path_factory.mktemp("upstream")


def upstream(folder, *arguments):
    done = subprocess.run([sys.executable, HERE / "upstream" / "run.py", folder, *arguments],
                          capture_output=True, text=True, check=False)
    if done.returncode == run.NOT_TO_BE_HAD:
        pytest.skip(done.stderr.strip())
    return done


def test_upstream_tests_pass_with_kernels(folder):
    done = upstream(folder, *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    told = next(line for line in done.stdout.splitlines() if line.startswith("dorajit: "))
    ran, rest = told.removeprefix("dorajit: ").split(" tests ran DoRA layers: ")
    assert int(ran) > 0 and rest.startswith(f"{ran} by kernels"), told


def test_upstream_tests_fail_without_kernels(folder, monkeypatch):
    """Otherwise passing would prove nothing."""
    monkeypatch.setenv("PEFT_DORA_FUSED", "0")
    done = upstream(folder, QUICK[0], "-k", "dora_params_have_gradients")
    assert done.returncode == 1 and "no kernel was launched" in done.stdout


def test_unavailable_version_of_peft_raises(tmp_path):
    with pytest.raises(OSError, match="PEFT 0.0.0 cannot be fetched"):
        run.tests_of("0.0.0", tmp_path)
