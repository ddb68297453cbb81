"""Failures that the arguments do not cause: compilers, the cache, memory. Each test has its own process."""

import pathlib
import shutil
import subprocess

import processes
import pytest
import torch

FAKE = pathlib.Path(__file__).parent / "fakes" / "cuda.c"

# PyTorch without CUDA has no CUDA tensors, so CPU tensors pretend to be CUDA tensors.
_ON_A_DEVICE = """
import torch
torch._C._cuda_getCurrentRawStream = lambda index: 0
torch.Tensor.__dlpack_c_exchange_api__ = None  # it would report the real device; attributes are read instead
torch.Tensor.is_cuda, torch.Tensor.is_cpu = True, False
torch.Tensor.get_device = lambda tensor: 0
"""


@pytest.fixture(scope="module")
def refusing_nvrtc(tmp_path_factory):
    """A folder with a fake NVRTC that refuses all programs and a fake driver with one device."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang-19")
    if not compiler:
        pytest.skip("no C compiler is here")
    folder = tmp_path_factory.mktemp("fakes")
    for name in ("libcuda.so.1", "libnvrtc.so.13"):
        subprocess.run([compiler, "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-o", folder / name,
                        FAKE], check=True)
    return str(folder)


def test_refused_kernel_raises_compile_error_with_log(refusing_nvrtc, tmp_path):
    has_gpu = torch.cuda.is_available()
    program = f"""
import dorajit
lora, base, gain = (torch.ones(shape, device={"cuda" if has_gpu else "cpu"!r})
                    for shape in ((4, 32), (4, 32), (32,)))
for call in (lambda: dorajit.fused_dora_compose(lora, base, gain, 0.5, inplace=False),
             lambda: dorajit.fused_dora_compose(lora, base, gain, 0.5),
             lambda: dorajit.fused_dora_forward_and_inner(lora, base, gain, 0.5),
             lambda: dorajit.compose_backward(lora, base, gain, 0.5),
             lambda: dorajit.warmup("compose", lora, base, gain),
             lambda: dorajit.fused_norm_assembly(gain, gain, gain, 0.5)):
    try:
        print("served:", call())
    except dorajit.CompileError as error:
        assert "nvrtcCompileProgram failed" in str(error) and error.status == 6, error
        what, refused = error.log.rsplit(" ", 1)
        assert what.endswith("no such luck"), error.log
        print("refused", int(refused))
"""
    variables = {} if has_gpu else {"LD_LIBRARY_PATH": refusing_nvrtc}
    printed = processes.run(program, start="import torch" if has_gpu else _ON_A_DEVICE,
                            DORAJIT_NVRTC=refusing_nvrtc, DORAJIT_LOG="off", DORAJIT_TUNE="off",
                            DORAJIT_DATABASES="none", DORAJIT_CACHE_DIR=str(tmp_path), **variables)
    # No other config is tried after the default has failed.
    assert printed.splitlines() == [f"refused {number}" for number in range(1, 7)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver")
def test_missing_nvrtc_or_driver_warns_and_runs_in_pytorch(refusing_nvrtc, tmp_path):
    program = f"""
import ctypes, os, warnings
import dorajit
lora, base, gain = torch.ones(4, 32), torch.ones(4, 32), torch.full((32,), 2.0)
for driver, missing in ((None, "libcuda.so.1 was not found; install the NVIDIA driver"),
                        ("{refusing_nvrtc}/libcuda.so.1", "pip install nvidia-cuda-nvrtc")):
    if os.fork() == 0:
        if driver:
            ctypes.CDLL(driver)
        with warnings.catch_warnings(record=True) as said:
            out = dorajit.fused_dora_compose(lora, base, gain, 0.5, inplace=False)
            try:
                with dorajit.force_native():
                    dorajit.fused_dora_compose(lora, base, gain, 0.5)
            except dorajit.FallbackError as error:
                refused = str(error)
        os._exit(0 if out.eq(2).all() and missing in refused and missing in str(said[0].message) else 1)
    assert os.wait()[1] == 0, missing
"""
    assert processes.run(program, start=_ON_A_DEVICE, DORAJIT_NVRTC=str(tmp_path / "nowhere"),
                         DORAJIT_LOG="off", DORAJIT_CACHE_DIR=str(tmp_path)) == ""


@pytest.mark.parametrize("compiler, compiled", [("g++", 1), ("none", 0)])
def test_cache_deleted_while_running_does_not_fail_calls(compiler, compiled, tmp_path):
    program = """
import shutil
folder = dorajit.cache.path
assert right() and dorajit.cache.stats()["artifacts"] == testing.statistics()["compilations"]
shutil.rmtree(folder)
assert right() and dorajit.fused_norm_assembly(gain, gain, gain, 0.5)[0].isfinite().all()
assert dorajit.compose_backward(lora, base, gain, 0.5)[2].isfinite().all()
print(dorajit.cache.stats()["winners"], testing.statistics()["compilations"])
"""
    printed = processes.run(program, DORAJIT_CXX=compiler, DORAJIT_LOG="off", DORAJIT_CACHE_DIR=str(tmp_path / "cache"))
    assert printed == f"0 {3 * compiled}"


def test_cache_folder_that_cannot_be_created_does_not_fail_calls(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "closed").mkdir(mode=0o500)
    program = f"""
import os
for place in "/proc/dorajit", "{tmp_path}/file", "{tmp_path}/closed/cache":
    os.environ["DORAJIT_CACHE_DIR"] = place
    if os.fork() == 0:
        os._exit(0 if right() else 1)
    assert os.wait()[1] == 0, place
"""
    assert processes.run(program, DORAJIT_LOG="off") == ""


def test_error_of_the_program_raises_cache_error(tmp_path):
    (tmp_path / "nonsense.jsonl").write_text("{}\n")
    program = """
import sys
for call in (lambda: dorajit.cache.import_from("{0}/nowhere"),
             lambda: dorajit.cache.import_from("{0}/nonsense.jsonl"),
             lambda: dorajit.cache.export_to("{0}/nowhere/all.jsonl")):
    try:
        print("done:", call())
    except dorajit.CacheError as error:
        assert "{0}/no" in str(error), error
for call in (lambda: dorajit.cache.import_from(3), lambda: dorajit.cache.export_to(None)):
    try:
        print("done:", call())
    except TypeError as error:
        assert "`path` is a" in str(error), error
""".format(tmp_path)
    assert processes.run(program, DORAJIT_CACHE_DIR=str(tmp_path / "cache")) == ""
