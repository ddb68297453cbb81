"""Each test that takes `device` runs on the CPU, and on a GPU where PyTorch finds one."""

import os
import pathlib
import sys
import tempfile
import types

# Set before the library is loaded, which reads them once. CPU tensors use built-in kernels, so
# that no test waits for a compiler.
_folder = tempfile.TemporaryDirectory(prefix="dorajit-python-tests-")
os.environ["DORAJIT_CACHE_DIR"] = _folder.name
os.environ["DORAJIT_TUNE"] = "off"
os.environ.setdefault("DORAJIT_CXX", "none")

import pytest
import torch

import dorajit
import environments
from dorajit import _torch_setup, testing

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture
def launches():
    """A function that returns operation -> calls that a kernel served since its last call."""
    seen = testing.launch_counts()

    def since():
        nonlocal seen
        now = testing.launch_counts()
        counts = {name: now[name] - seen[name] for name in now if now[name] != seen[name]}
        seen = now
        return counts
    return since


@pytest.fixture
def layer_launches(launches):
    """As `launches`, for layers: the two operations that may compute a norm are counted together, and so are the two
    that may compute a composition or its gradients, because the choice only affects speed."""
    def since():
        counts = launches()
        merged = {"norm": counts.pop("weight_norm", 0) + counts.pop("norm_assembly", 0),
                  "compose_residual": counts.pop("compose_residual", 0) + counts.pop("compose_low_rank", 0),
                  "residual_backward": counts.pop("residual_backward", 0) + counts.pop("magnitude_backward", 0)}
        return {**counts, **{name: count for name, count in merged.items() if count}}
    return since


@pytest.fixture(scope="session")
def examples():
    """examples/own_kernels/kernels.py"""
    folder = str(pathlib.Path(__file__).parents[2] / "examples" / "own_kernels")
    sys.path.insert(0, folder)
    try:
        import kernels
    finally:
        sys.path.remove(folder)
    return kernels


@pytest.fixture
def fresh_compiler():
    """torch.compile without code compiled by earlier tests."""
    torch._dynamo.reset()


@pytest.fixture
def fresh_inductor():
    """torch.compile without what Inductor keeps on disk: code that a right fake implementation has led to."""
    from torch._inductor import utils
    with (getattr(utils, "fresh_cache", None) or utils.fresh_inductor_cache)():
        yield

@pytest.fixture(autouse=True)
def same_numbers():
    """The same random numbers in every run, and convolutions of PyTorch in full float32."""
    torch.manual_seed(20240607)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.fixture
def without_switches(monkeypatch):
    """Unsets PEFT's variables; variables that a test sets are unset after it."""
    for name in ("PEFT_DORA_FUSED", "PEFT_DORA_FUSED_BACKWARD", "PEFT_DORA_NORM_CHUNK_MB", "PEFT_DORA_FWD_CHUNK_MB"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    dorajit.invalidate_environment()
    yield
    monkeypatch.undo()
    dorajit.invalidate_environment()


@pytest.fixture
def switch(without_switches, monkeypatch):
    """A function that sets a variable and makes dorajit read it, as a new process would."""
    def switch(variable, text):
        monkeypatch.setenv(variable, text)
        dorajit.invalidate_environment()
    return switch


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory):
    """The interpreter of an environment in which the package is installed (environments.py)."""
    return environments.make(tmp_path_factory.mktemp("environment"))


@pytest.fixture
def dropout_meaning():
    """dorajit.set_dropout; the default is set after the test."""
    yield dorajit.set_dropout
    dorajit.set_dropout("peft")


@pytest.fixture
def vector(monkeypatch):
    """What reads as a vector on a GPU, through Python attributes."""
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    monkeypatch.setattr(torch.Tensor, "is_neg", lambda tensor: False)
    _torch_setup.configure(None)
    yield types.SimpleNamespace(dtype=torch.float32, is_cpu=False, is_cuda=True, get_device=lambda: 0, shape=(4,),
                                stride=lambda: (1,), data_ptr=lambda: 64)
    monkeypatch.undo()
    _torch_setup.configure(_torch_setup.EXCHANGE_API)
