"""Failures that the arguments do not cause (compilers, the cache, memory, missing components), threads, forks, spawned
workers, and the end of the interpreter."""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import threading

import dorajit
import processes
import pytest
import reference
import torch
from reference import SCALE, operands

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


def test_threads_compose_and_differentiate_concurrently(launches):
    def work(seed):
        torch.manual_seed(seed)
        tensors = operands((5, 40 + seed % 7), "cpu", grad=True)
        for _ in range(50):
            out = dorajit.fused_dora_compose_autograd(*tensors, SCALE)
            if not torch.equal(out, reference.compose(*tensors, SCALE)):
                return False
            out.sum().backward()
        return True
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))
    assert launches() == {"compose_inner": 800, "backward": 800}


def test_long_call_releases_the_gil():
    tensors = operands((2000, 4096), "cpu")
    stop, turns = threading.Event(), []
    def count():
        while not stop.is_set():
            turns.append(None)
    thread = threading.Thread(target=count)
    dorajit.fused_dora_compose(*tensors, SCALE)
    thread.start()
    before = len(turns)
    for _ in range(20):
        dorajit.fused_dora_compose(*tensors, SCALE)
    during = len(turns) - before
    stop.set()
    thread.join()
    assert during > 100


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_compose(method, tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(f"""
import multiprocessing, warnings
import torch, dorajit
def work(seed):
    torch.manual_seed(seed)
    lora, base, gain = torch.randn(4, 32), torch.randn(4, 32), torch.randn(32)
    return torch.equal(dorajit.fused_dora_compose(lora, base, gain, 0.5, False),
                       (gain - 1) * base + gain * (0.5 * lora))
if __name__ == "__main__":
    warnings.simplefilter("ignore")
    assert work(0)
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        assert all(pool.map(work, range(6)))
    print("done")
""")
    assert processes.run(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
                         if method == "fork" else
                         f"import subprocess, sys; print(subprocess.run([sys.executable, "
                         f"{str(script)!r}], check=True, capture_output=True, text=True).stdout)",
                         start="") == "done"


@pytest.mark.parametrize("end", [
    "",
    "import atexit; atexit.register(right)",
    "import sys; del sys.modules['dorajit'], dorajit",
    "import threading; threading.Thread(target=lambda: [right() for _ in range(2000)]).start()",
    # Use tensors whose operations do not release the GIL: threads inside PyTorch cannot be abandoned at exit.
    "import functools, threading, types; from dorajit import _native, _torch_setup\n"
    "torch.Tensor.is_neg = lambda one: False\n_torch_setup.configure(None)\n"
    "def still(t): return types.SimpleNamespace(data_ptr=functools.partial(int, t.data_ptr()), "
    "dtype=t.dtype, shape=t.shape, stride=functools.partial(tuple, t.stride()), is_cpu=True)\n"
    "tensors = [still(t) for t in (lora, base, gain, expected)]\n"
    "_native.compose(*tensors, 0.5)\n"
    "threading.Thread(target=lambda: [_native.compose(*tensors, 0.5) for _ in range(10**8)], "
    "daemon=True).start()",
    # If something keeps the namespace of the program (dill, which PyTorch imports), modules are cleared before it.
    "class Last:\n    def __del__(self):\n        try: right()\n        except TypeError: pass\nlast = Last()",
    "import os; os.fork() or right()",
    "lora.requires_grad_(); kept = dorajit.fused_dora_compose_autograd(lora, base, gain, 0.5)",
])
def test_interpreter_exit_in_any_order_does_not_crash(end):
    assert processes.run("assert right()\n" + end, fresh=True) == ""


_WITHOUT_TORCH = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch": raise ModuleNotFoundError("No module named 'torch'")
sys.meta_path.insert(0, Absent())
"""


def test_import_without_torch_succeeds_and_use_raises():
    program = """
import dorajit
assert dorajit.__version__ and dorajit.cache.path
with dorajit.tuning("off"), dorajit.disabled():
    pass
try:
    dorajit.fused_dora_compose
except ImportError as error:
    print(error)
try:
    dorajit.nothing
except AttributeError as error:
    print(error)
"""
    printed = processes.run(program, start=_WITHOUT_TORCH, fresh=True)
    assert "dorajit.fused_dora_compose needs PyTorch" in printed
    assert "has no attribute 'nothing'" in printed


def test_broken_torch_is_reported_as_broken(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')")
    program = """
import dorajit
try:
    dorajit.nn
except ImportError as error:
    print(error, "|", error.__cause__)
"""
    printed = processes.run(program, start="", PYTHONPATH=os.pathsep.join(
        [str(tmp_path), os.environ.get("PYTHONPATH", "")])).splitlines()
    assert len(printed) == 1
    for line in printed:
        said, cause = line.split(" | ")
        assert said == f"dorajit.nn needs PyTorch, which cannot be imported here: {cause}"
        assert cause.startswith("libcudart.so.13") and "not installed" not in said


def test_call_path_does_not_import_modules_or_read_files():
    program = """
import builtins, os, sys
lora.requires_grad_()
def everything():
    dorajit.fused_dora_compose_autograd(lora, base, gain, 0.5).sum().backward()
    dorajit.fused_norm_assembly(gain, gain, gain, 0.5)
    with torch.no_grad():
        dorajit.fused_dora_compose(lora, base, gain, 0.5)
everything()
before = set(sys.modules)
def caller(): return sys._getframe(2).f_globals.get("__name__", "")
def watched(function):
    def watch(*arguments, **named):
        assert not caller().startswith("dorajit"), (caller(), arguments[:1])
        return function(*arguments, **named)
    return watch
builtins.__import__ = watched(builtins.__import__)
os.environ.__class__.__getitem__ = watched(os.environ.__class__.__getitem__)
os.getenv = watched(os.getenv)
everything()
assert not {name for name in set(sys.modules) - before if name.startswith("dorajit")}
"""
    assert processes.run(program) == ""


def test_failing_compiler_does_not_fail_calls(tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\ncase \"$*\" in *version*) exec g++ \"$@\";; esac\n"
                        "echo 'kernel.cc:1: error: no such luck' >&2\nexit 1\n")
    compiler.chmod(0o755)
    program = "print(right(), testing.statistics()['builtin_kernels'])"
    printed = processes.run(program, DORAJIT_CXX=str(compiler), DORAJIT_LOG="off",
                            DORAJIT_CACHE_DIR=str(tmp_path / "cache"))
    assert printed == "True 1"


def test_compiled_kernels_have_the_bits_of_built_in_ones(tmp_path):
    program = """
assert right() and right()
print(testing.statistics()["compilations"], testing.statistics()["builtin_kernels"])
"""
    printed = processes.run(program, DORAJIT_CXX="g++", DORAJIT_CACHE_DIR=str(tmp_path))
    assert printed == "1 0"


def test_forking_while_a_thread_tunes_does_not_deadlock():
    printed = processes.run("""
import os, signal, threading, time
def call(rows, cols, dtype):
    x = torch.ones(rows, cols, dtype=dtype)
    assert dorajit.fused_dora_compose(x, x, torch.ones(cols, dtype=dtype), 0.5, False).eq(0.5).all()
call(2, 8, torch.float64)
def tune():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        call(1024, 2048, dtype)
threading.Thread(target=tune, daemon=True).start()
children = []
for number in range(4):
    time.sleep(0.1)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        call(64, 96, torch.float32)
        os._exit(0)
    children.append(child)
print(*(os.waitpid(child, 0)[1] for child in children), flush=True)
os._exit(0)
""", DORAJIT_TUNE="first_use", DORAJIT_TUNE_SECONDS="0.3", DORAJIT_CXX="")
    assert printed.split() == ["0"] * 4


def test_forking_while_a_thread_holds_locks_does_not_deadlock():
    printed = processes.run("""
import os, signal
from dorajit.norms import frozen, precision
from dorajit.peft import patch
for holder in frozen, patch, precision._float32_products:
    holder._lock.acquire()  # as if another thread held it
child = os.fork()
if child == 0:
    signal.alarm(60)
    with frozen._lock: pass
    dorajit.set_dora_norm_threshold_mb(64)
    with patch._lock: pass
    dorajit.weight_norm(torch.ones(4, 8), torch.ones(2, 8), torch.ones(4, 2), 1.0)
    os._exit(0)
print(os.waitpid(child, 0)[1])
""")
    assert printed == "0"


def test_forked_process_restores_precision_settings_of_other_threads():
    printed = processes.run("""
import os, threading
from dorajit.norms import precision
products = torch.backends.mkldnn.matmul
products.fp32_precision = "bf16"
inside, go = threading.Event(), threading.Event()
def other():
    with precision.full("cpu"):
        inside.set()
        go.wait()
thread = threading.Thread(target=other)
thread.start()
inside.wait()
def in_a_fork():
    child = os.fork()
    if child == 0:
        os._exit(["bf16", "ieee"].index(products.fp32_precision))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(products.fp32_precision, in_a_fork())
with precision.full("cpu"):
    print(in_a_fork())
go.set()
thread.join()
print(products.fp32_precision)
""")
    assert printed.split() == ["ieee", "0", "1", "bf16"]
