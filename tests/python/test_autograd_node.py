"""The autograd node in C++: that it is used, what it leaves to Python, and what may go wrong."""

import os
import shutil
import subprocess
import sys
import threading
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dorajit
import processes
from dorajit import _native, autograd, autograd_node
from reference import SCALE, operands


@pytest.fixture
def compiled(compiled_node, monkeypatch):
    """The node is in force; the module that has it."""
    monkeypatch.setattr(autograd_node, "module", compiled_node)
    return compiled_node


@pytest.fixture
def alone(compiled):
    """Python is not asked for what the node may leave to it."""
    def differentiate(*arguments):
        raise AssertionError("left to Python")
    compiled.configure(_native.node_calls(), differentiate)
    yield
    compiled.configure(_native.node_calls(), autograd._differentiate)


def is_compiled(out):
    return "Composition" in out.grad_fn.name()


FORMS = {"compose": lambda lora, base, gain: dorajit.fused_dora_compose_autograd(lora, base, gain, SCALE),
         "residual": lambda lora, base, gain: dorajit.fused_dora_compose_residual(lora, base, gain, SCALE),
         "bias": lambda lora, base, gain: dorajit.fused_dora_compose_residual(
             lora, base, gain, SCALE, torch.linspace(-1, 1, gain.numel()).to(base))}


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


@pytest.mark.parametrize("dtype, gain_dtype", [(torch.float32, torch.float32),
                                               (torch.float64, torch.float64),
                                               (torch.float16, torch.float16),
                                               (torch.bfloat16, torch.float32)])
@pytest.mark.parametrize("gain_shape", [(24,), (1, 24), (7, 1)])
@pytest.mark.parametrize("frozen", [(), (0,), (1,), (2,), (0, 1)])
def test_the_same_bits_and_launches(device, launches, compiled, alone, form, dtype, gain_dtype,
                                    gain_shape, frozen):
    tensors = operands((3, 7, 24), device, dtype, gain_dtype, gain_shape, grad=True)
    for index in frozen:
        tensors[index].requires_grad_(False)
    d_out = torch.randn((3, 7, 24), device=device).to(dtype)
    found = []
    for module in compiled, None:
        autograd_node.module = module
        out = form(*tensors)
        assert is_compiled(out) == (module is not None)
        trained = [tensor for tensor in tensors if tensor.requires_grad]
        found.append((out, *torch.autograd.grad(out, trained, d_out), launches()))
    *first, launched = found[0]
    *second, launched_by_python = found[1]
    assert launched == launched_by_python and sum(launched.values()) == 2
    for one, other in zip(first, second, strict=True):
        assert one.dtype is other.dtype and torch.equal(one, other)


def test_a_gradient_of_many_rows(device, launches, compiled, alone, form):
    tensors = operands((1500, 40), device, grad=True)
    found = []
    for module in compiled, None:
        autograd_node.module = module
        out = form(*tensors)
        found.append(torch.autograd.grad(out, tensors, out.detach()))
        assert launches()
    assert all(torch.equal(one, other) for one, other in zip(*found))


def test_what_no_kernel_takes_is_left_to_python(device, compiled):
    lora, base, gain = operands((4, 8), device, grad=True)
    meta = [tensor.to("meta") for tensor in (lora, base, gain)]
    for operands_ in (meta, (lora.int(), base, gain), (lora, base[:2], gain), (lora, base, gain[:3]),
                      (lora.to_sparse(), base, gain), (lora.view(2, 2, 8), base, gain),
                      (torch._neg_view(lora), base, gain), (lora, base, torch._neg_view(gain)),
                      (torch._efficientzerotensor((4, 8), device=device), base, gain)):
        assert compiled.compose(*operands_, SCALE) is None
        assert compiled.compose_residual(*operands_, None, SCALE) is None
    assert compiled.compose_residual(lora, base.double(), gain, None, SCALE) is None
    assert compiled.compose_residual(lora, base, gain, gain[:3], SCALE) is None


def test_arguments_that_are_no_tensors(compiled):
    lora, base, gain = operands((4, 8), "cpu", grad=True)
    for call in (lambda: compiled.compose(lora, base, None, SCALE),
                 lambda: compiled.compose(lora, base, gain),
                 lambda: compiled.compose(lora, base, gain, "half"),
                 lambda: compiled.compose_residual(lora, base, gain, 3, SCALE),
                 lambda: compiled.configure(3, None)):
        with pytest.raises((TypeError, ValueError)):
            call()


def test_switched_off_it_runs_in_pytorch(device, compiled, launches):
    tensors = operands((4, 8), device, grad=True)
    with dorajit.disabled():
        out = FORMS["compose"](*tensors)
    assert not is_compiled(out) and launches() == {}
    out = FORMS["compose"](*tensors)
    assert is_compiled(out) and launches() == {"compose_inner": 1}
    with dorajit.disabled():
        found = torch.autograd.grad(out, tensors, torch.ones_like(out), retain_graph=True)
    assert launches() == {}
    expected = torch.autograd.grad(out, tensors, torch.ones_like(out))
    assert launches() == {"backward": 1}
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other)


def test_gradients_through_inner_and_of_gradients(device, compiled, form):
    tensors = operands((4, 6), device, torch.float64, grad=True)
    assert is_compiled(form(*tensors))
    assert torch.autograd.gradcheck(form, tensors)
    assert torch.autograd.gradgradcheck(form, tensors)


class Watched(torch.autograd.Function):
    """Passes on what it is given; `alive` tells whether its node lives."""

    alive = None

    @staticmethod
    def forward(ctx, x):
        Watched.alive = weakref.ref(ctx)
        return x.clone()

    @staticmethod
    def backward(ctx, d_out):
        return d_out


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_leave_no_graph_behind(device, compiled, form, reentrant):
    lora, base, gain = operands((4, 8), device, grad=True)
    out = checkpoint(lambda x: form(Watched.apply(x), base, gain), lora, use_reentrant=reentrant)
    out.sum().backward()
    # That of the recomputation, which ends where the last tensor that is needed is saved.
    del out
    assert Watched.alive() is None


def test_hooks_of_saved_tensors_that_raise(device, compiled, form):
    lora, base, gain = operands((4, 8), device, grad=True)
    for stop in 1, 2:
        seen = []

        def pack(tensor):
            seen.append(tensor)
            if len(seen) == stop:
                raise KeyError("full")
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            with pytest.raises(KeyError, match="full"):
                form(Watched.apply(lora), base, gain)
        seen.clear()
        assert Watched.alive() is None


def test_a_graph_that_was_freed(device, compiled, form):
    tensors = operands((4, 8), device, grad=True)
    out = form(*tensors)
    out.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.sum().backward()
    out = form(*tensors)
    with torch.no_grad():
        tensors[2].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_threads(device, compiled, form):
    tensors = operands((64, 32), device, grad=True)
    expected = torch.autograd.grad(form(*tensors).sum(), tensors)
    wrong = []

    def work():
        for _ in range(50):
            found = torch.autograd.grad(form(*tensors).sum(), tensors)
            wrong.extend(1 for one, other in zip(found, expected) if not torch.equal(one, other))
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_compiled_autograd_sees_operators(compiled, form, launches):
    tensors = operands((4, 8), "cpu", grad=True)
    expected = torch.autograd.grad(form(*tensors).square().sum(), tensors)
    for module in compiled, None:
        autograd_node.module = module
        torch._dynamo.reset()
        launches()
        compiler = torch.compile(backend="aot_eager", fullgraph=True)
        with torch._dynamo.compiled_autograd._enable(compiler):
            form(*tensors).square().sum().backward()
        assert {name.removeprefix("residual_") for name in launches()} >= {"backward"}
        for tensor, one in zip(tensors, expected):
            assert torch.equal(tensor.grad, one)
            tensor.grad = None


# --- making it -----------------------------------------------------------------------------------

_USE = """
from dorajit import _native, autograd, autograd_node
for one in lora, base, gain: one.requires_grad_()
out = dorajit.fused_dora_compose_autograd(lora, base, gain, 0.5)
out.sum().backward()
print(autograd_node.module is not None, out.grad_fn.name().rpartition(":")[2])
"""


def made_in(folder):
    return [name for _, _, names in os.walk(folder) for name in names if name.endswith(".so")]


def test_made_by_one_command_and_found_by_later_processes(compiled_node, tmp_path):
    environment = {**os.environ, "DORAJIT_CACHE_DIR": str(tmp_path), "DORAJIT_LOG": "error"}
    environment.pop("DORAJIT_CXX")
    assert processes.run(_USE, DORAJIT_CACHE_DIR=str(tmp_path)) == "False ComposeBackward"
    for _ in range(2):  # the second finds it done
        done = subprocess.run([sys.executable, "-m", "dorajit.autograd_node"], env=environment,
                              capture_output=True, text=True, check=True)
        assert not done.stderr and os.path.isfile(done.stdout.strip())
    file = done.stdout.strip()
    assert file.startswith(str(tmp_path)) and len(made_in(tmp_path)) == 1
    assert processes.run(_USE, DORAJIT_CACHE_DIR=str(tmp_path)) == "True Composition>"
    for program in ("import os; os.fork() or os._exit(0)\n" + _USE, _USE + "import os; os._exit(0)",
                    _USE + "kept = out * 2"):
        assert "True Composition>" in processes.run(program, DORAJIT_CACHE_DIR=str(tmp_path))
    # What cannot be loaded costs a warning, and no call.
    with open(file, "wb") as broken:
        broken.write(b"\x7fELF nonsense")
    program = "import warnings; warnings.simplefilter('ignore')\n"
    assert processes.run(_USE, start=program + processes._START,
                         DORAJIT_CACHE_DIR=str(tmp_path)) == "False ComposeBackward"
    program = """
import warnings
with warnings.catch_warnings(record=True) as said:
    import dorajit
print(*(str(one.message) for one in said))
try:
    dorajit.autograd_node.build()
except dorajit.CacheError as error:
    print(error)
"""
    printed = processes.run(program, start="", DORAJIT_CACHE_DIR=str(tmp_path)).splitlines()
    assert len(printed) == 2 and all(file in line and "elete" in line for line in printed)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to give a file away")
def test_a_file_of_somebody_else_is_not_loaded(compiled_node, tmp_path):
    file = autograd_node._path()
    made = tmp_path / "autograd_nodes" / file.parent.name / file.name
    made.parent.mkdir(parents=True)
    made.write_bytes(file.read_bytes())
    os.chown(made, 12345, 12345)
    start = "import warnings; warnings.simplefilter('ignore')\n" + processes._START
    assert processes.run(_USE, start=start, DORAJIT_CACHE_DIR=str(tmp_path)) == "False ComposeBackward"


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_compilers_find_no_fault_in_it(compiler, monkeypatch, tmp_path):
    found = next(filter(None, map(shutil.which, (compiler, f"{compiler}-19"))), None)
    if found is None:
        pytest.skip(f"{compiler} is not installed")
    strict = tmp_path / "strict"
    strict.write_text(f'#!/bin/sh\nexec {found} -Werror -O0 "$@"\n')
    strict.chmod(0o755)
    monkeypatch.setenv("DORAJIT_CXX", str(strict))
    autograd_node._compile(autograd_node._compiler(), tmp_path / "made" / "node.so")
    assert (tmp_path / "made" / "node.so").stat().st_size > 0


def test_what_keeps_it_from_being_made(tmp_path, monkeypatch):
    monkeypatch.setattr(autograd_node, "module", None)
    monkeypatch.setenv("DORAJIT_CACHE_DIR", str(tmp_path / "cache"))
    for wanted in "none", str(tmp_path / "nowhere"):
        monkeypatch.setenv("DORAJIT_CXX", wanted)
        with pytest.raises(dorajit.NoCompilerError, match="DORAJIT_CXX"):
            autograd_node.build()
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'node.cc:1: no such luck' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("DORAJIT_CXX", str(compiler))
    with pytest.raises(dorajit.CompileError, match="through Python as before") as raised:
        autograd_node.build()
    assert "no such luck" in raised.value.log and "-std=c++20" in raised.value.log
    assert os.listdir(tmp_path / "cache" / "autograd_nodes") == []
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DORAJIT_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(dorajit.CacheError, match="DORAJIT_CACHE_DIR"):
        autograd_node.build()
    for name in "DORAJIT_CACHE_DIR", "XDG_CACHE_HOME", "HOME":
        monkeypatch.setenv(name, "")
    with pytest.raises(dorajit.CacheError, match="no folder"):
        autograd_node.build()
    assert autograd_node.module is None
    done = subprocess.run([sys.executable, "-m", "dorajit.autograd_node"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 1 and "DORAJIT_CACHE_DIR" in done.stderr
    assert "Traceback" not in done.stderr
