"""Streams and graphs of CUDA, and several GPUs in one process."""

import copy
import os
import pathlib
import threading

import dorajit
import processes
import pytest
import reference
import torch
from reference import SCALE, needs_gpu, operands

pytestmark = needs_gpu
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


def test_compose_runs_on_the_current_stream():
    lora, base, gain = operands((4096, 4096), "cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    expected = reference.compose(lora + 1, base, gain, SCALE)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        lora.add_(1)
        out = dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False)
    stream.synchronize()
    assert torch.equal(out, expected)


_START = """
import pytest, torch, dorajit, reference
from reference import SCALE, operands
"""


def in_new_process(program):
    """Runs a program in a process without loaded kernels."""
    folder = pathlib.Path(__file__).parent
    processes.run(program, _START, ("-W", "ignore"),
                  PYTHONPATH=os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


def test_captured_call_without_loaded_kernel_raises():
    in_new_process("""
tensors = operands((4, 8), "cuda")
with pytest.raises(dorajit.CaptureUnsafeError, match="dorajit.warmup"):
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        dorajit.fused_dora_compose(*tensors, SCALE, inplace=False)
torch.cuda.synchronize()
dorajit.warmup("compose", *tensors)
expected = reference.compose(*tensors, SCALE)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = dorajit.fused_dora_compose(*tensors, SCALE, inplace=False)
graph.replay()
assert torch.equal(out, expected)
""")


def test_training_step_can_be_captured_after_warmup():
    in_new_process("""
leaves, bias = operands((4, 8), "cuda", grad=True), torch.randn(8, device="cuda")
def step():
    out = dorajit.fused_dora_compose_residual(*leaves, SCALE, bias)
    return (out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out)))
with pytest.raises(dorajit.CaptureUnsafeError, match="dorajit.warmup"):
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        step()
torch.cuda.synchronize()
dorajit.warmup("compose_residual", *leaves, bias)
dorajit.warmup("residual_backward", *leaves)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    expected = step()
stream.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=stream):
    found = step()
graph.replay()
torch.cuda.synchronize()
assert all(map(torch.equal, found, expected))
""")


def test_compiling_leaves_the_cache_of_the_driver_alone(tmp_path):
    folder = tmp_path / "driver"
    processes.run("""
assert torch.equal(dorajit.fused_dora_compose(lora.cuda(), base.cuda(), gain.cuda(), 0.5, False).cpu(), expected)
""", fresh=True, CUDA_CACHE_PATH=str(folder), DORAJIT_CACHE_DIR=str(tmp_path / "dorajit"))
    assert list((tmp_path / "dorajit" / "artifacts").rglob("*")) and not list(folder.rglob("*"))


@pytest.mark.parametrize("base_type", [torch.float32, torch.bfloat16])
def test_new_layer_can_be_captured_after_a_step_of_an_equal_layer(base_type):
    def make():
        linear = torch.nn.Linear(512, 776, device="cuda", dtype=base_type)
        layer = dorajit.nn.DoRALinear.from_linear(linear, rank=16, alpha=32).float()
        layer.base_layer.to(base_type)
        torch.nn.init.normal_(layer.lora_B.weight)
        return layer
    x = torch.randn(64, 512, device="cuda", dtype=base_type, requires_grad=True)
    def step(layer):
        out = layer(x)
        trained = [x, *(one for one in layer.parameters() if one.requires_grad)]
        return (out.detach(), *torch.autograd.grad(out.square().sum(), trained))
    like, layer = make(), make()
    step(like)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step(layer)
    graph.replay()
    torch.cuda.synchronize()
    assert all(map(torch.equal, found, step(layer)))


@pytest.mark.parametrize("inplace", [False, True])
def test_compiled_training_step_is_replayed(launches, inplace):
    def loss(lora, base, gain):
        return dorajit.fused_dora_compose(lora * 2, base, gain, SCALE, inplace).square().sum()
    def step(function, tensors):
        return torch.autograd.grad(function(*tensors), tensors)
    torch._dynamo.reset()
    compiled = torch.compile(loss, mode="reduce-overhead", fullgraph=True)
    for _ in range(6):
        tensors = operands((64, 96), "cuda", torch.bfloat16, torch.float32, grad=True)
        expected = step(loss, tensors)
        launches()
        torch.compiler.cudagraph_mark_step_begin()
        found = step(compiled, tensors)
        counts = launches()
        torch.testing.assert_close(found, expected)
    assert counts == {}  # both passes run only by replaying their graphs


def test_compiled_inference_step_is_replayed(launches):
    torch._dynamo.reset()
    compiled = torch.compile(dorajit.fused_dora_compose, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for _ in range(4):
            tensors = operands((64, 96), "cuda", torch.bfloat16)
            expected = reference.compose(*tensors, SCALE)
            launches()
            torch.compiler.cudagraph_mark_step_begin()
            out = compiled(*tensors, SCALE, inplace=False)
            counts = launches()
            assert torch.equal(out, expected)
    assert counts == {}


def test_make_graphed_callables_replays_both_passes(launches):
    layer = dorajit.nn.DoRALinear.from_linear(torch.nn.Linear(128, 96, device="cuda"), rank=4, alpha=8)
    torch.nn.init.normal_(layer.lora_B.weight)
    alone = copy.deepcopy(layer)
    def batch():
        return torch.randn(32, 128, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(layer, (batch(),))
    trained = [[one for one in model.parameters() if one.requires_grad] for model in (layer, alone)]
    for _ in range(3):
        x = batch()
        launches()
        found = torch.autograd.grad(graphed(x).square().sum(), [x, *trained[0]])
        assert launches() == {}
        expected = torch.autograd.grad(alone(x).square().sum(), [x, *trained[1]])
        torch.testing.assert_close(found, expected)
        with torch.no_grad():
            for parameters in trained:
                for one, gradient in zip(parameters, expected[1:], strict=True):
                    one.sub_(gradient, alpha=1e-4)


@needs_two
def test_threads_run_on_the_devices_of_their_tensors(launches):
    failures = []

    def work(index):
        device = torch.device("cuda", index)
        current = torch.cuda.current_stream(device)
        try:
            for shape in ((1, 512), (300, 4096), (17, 1030)):
                lora, base, gain = operands(shape, device, torch.bfloat16, torch.float32)
                for stream in (current, torch.cuda.Stream(device)):
                    lora, gain = (one.detach().requires_grad_() for one in (lora, gain))
                    stream.wait_stream(current)
                    with torch.cuda.stream(stream):
                        out = dorajit.fused_dora_compose_autograd(lora, base, gain, SCALE)
                        out.sum().backward()
                    stream.synchronize()
                    assert torch.equal(out, reference.compose(lora, base, gain, SCALE))
                    assert {out.device, lora.grad.device, gain.grad.device} == {device}
        except Exception as error:  # pytest reports only errors of its own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert launches() == {"compose_inner": 36, "backward": 36}


@needs_two
def test_operands_on_two_devices_raise():
    lora, base, gain = operands((4, 8), "cuda:0")
    with pytest.raises(ValueError, match="argument `base` is on cuda:1 but `lora` is on cuda:0"):
        dorajit.fused_dora_compose(lora, base.to("cuda:1"), gain, SCALE)
