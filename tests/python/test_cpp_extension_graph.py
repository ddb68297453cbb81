"""The autograd graph of the C++ extension's node: saved tensors, lifetimes and errors."""

import threading
import time
import weakref

import pytest
import torch
from compiled_nodes import assert_same, each_way, error_of, is_compiled, with_parameters
from dorajit import _native
from dorajit.layers import linear
from linear_layers import BF16, operands, ours, trained
from torch.utils.checkpoint import checkpoint


class Watched(torch.autograd.Function):
    """The identity; `alive` tells whether its node exists."""

    alive = None

    @staticmethod
    def forward(ctx, x):
        Watched.alive = weakref.ref(ctx)
        return x.clone()

    @staticmethod
    def backward(ctx, d_out):
        return d_out


def is_gone():
    """Whether the last node was freed; the thread that ran it may hold it for a moment."""
    deadline = time.monotonic() + 20
    while Watched.alive() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    return Watched.alive() is None


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_cpp_node_is_freed(device, compiled, alone, reentrant):
    of = with_parameters(operands(device))
    d_out = torch.randn(5, 40, device=device)
    expected = torch.autograd.grad(ours(of), trained(of), d_out)
    out = checkpoint(lambda x: ours({**of, "x": Watched.apply(x)}), of["x"], use_reentrant=reentrant)
    out.backward(d_out)
    # The node of the recomputation, which ends when the last needed tensor has been saved.
    del out
    assert is_gone()
    assert_same([one.grad for one in trained(of)], expected)


@pytest.mark.parametrize("wanted", [("x",), ("magnitude",), ("lora_B",)], ids="-".join)
def test_cpp_node_keeps_no_other_tensors_alive(device, compiled, wanted):
    """Hooks do not see tensors that the node holds without saving them, so it must not hold these."""
    of = operands(device, trained=wanted)
    x = of.pop("x") * 1
    alive = weakref.ref(x)
    out = ours({**of, "x": x})
    assert is_compiled(out)
    del x
    assert alive() is None
    alive = weakref.ref(out)
    held = out.grad_fn
    del out
    assert alive() is None and held is not None


@pytest.mark.parametrize("stop", range(1, 9))
def test_raising_saved_tensor_hook_frees_cpp_node(device, compiled, stop):
    of = operands(device)
    seen = []

    def pack(tensor):
        seen.append(tensor)
        if len(seen) == stop:
            raise KeyError("full")
        return tensor
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        with pytest.raises(KeyError, match="full"):
            ours({**of, "x": Watched.apply(of["x"])})
    seen.clear()
    assert is_gone()


def test_raising_unpack_hook_fails_backward_of_cpp_node(device, compiled):
    of = operands(device)
    def unpack(tensor):
        raise KeyError("lost")
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        out = ours(of)
    with pytest.raises(KeyError, match="lost"):
        out.sum().backward()


class Stopped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, d_out):
        return None


def test_cpp_node_without_incoming_gradient_launches_nothing(device, launches, compiled):
    of = operands(device)

    def run():
        out = Stopped.apply(ours(of)).sum()
        launches()
        return [*torch.autograd.grad(out, trained(of), allow_unused=True), launches()]
    assert each_way(run) == [[None] * 4 + [{}]] * 2


def test_python_error_in_backward_of_cpp_node_is_raised(device, compiled):
    def differentiate(*_):
        raise KeyError("not today")
    out = ours(operands(device))
    compiled.configure(_native.call_table(), differentiate)
    try:
        with pytest.raises(KeyError, match="not today"):
            torch.autograd.grad(out.sum(), out.grad_fn.next_functions[0][0].variable, create_graph=True)
    finally:
        compiled.configure(_native.call_table(), linear.differentiate)


def test_second_backward_of_freed_cpp_node_raises(device, compiled):
    of = operands(device)
    def run():
        out = ours(of)
        out.sum().backward()
        return error_of(lambda: out.sum().backward())
    found, expected = each_way(run)
    assert found == expected and "backward through the graph a second time" in found[1]


@pytest.mark.parametrize("name", ["x", "weight", "lora_A", "lora_B"])
@pytest.mark.parametrize("are_parameters", [False, True])
@pytest.mark.parametrize("is_hooked", [False, True])
@pytest.mark.parametrize("dtype", [None, BF16])
def test_tensor_written_before_backward_of_cpp_node_raises(device, compiled, name, are_parameters, is_hooked, dtype):
    """Raises an error, unless the tensor was cast or a hook has stored it."""
    def run():
        torch.manual_seed(1)
        of = operands(device)
        of = with_parameters(of) if are_parameters else of
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda one: one, lambda one: one)
        with torch.autocast(device, dtype=dtype or BF16, enabled=dtype is not None):
            if is_hooked:
                with hooks:
                    out = ours(of)
            else:
                out = ours(of)
        with torch.no_grad():
            of[name].add_(1)
        refused = error_of(lambda: out.float().sum().backward())
        return [refused, *(one.grad for one in trained(of) if one.grad is not None)]
    found, expected = each_way(run)
    assert_same(found, expected)
    assert (found[0] is None) == (is_hooked or dtype is not None)
    assert found[0] is None or "modified by an inplace operation" in found[0][1]


def test_inference_tensors_give_the_errors_of_the_python_node(device, compiled):
    of = operands(device)
    for name in "x", "weight", "bias":
        with torch.inference_mode():
            made = torch.ones_like(of[name])
            parameter = torch.nn.Parameter(torch.ones_like(of[name]), requires_grad=False)
        for one in made, parameter:
            found, expected = each_way(lambda: error_of(lambda: ours({**of, name: one})))
            assert found == expected


def test_cpp_node_in_several_threads_has_right_gradients(device, compiled):
    of = with_parameters(operands(device, shape=(64, 32)))
    expected = torch.autograd.grad(ours(of).sum(), trained(of))
    wrong = []

    def work():
        for _ in range(50):
            found = torch.autograd.grad(ours(of).sum(), trained(of))
            wrong.extend(1 for one, other in zip(found, expected) if not torch.equal(one, other))
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("are_parameters", [False, True])
def test_compiled_autograd_of_cpp_node_sees_operators(compiled, launches, are_parameters):
    """Also between steps that write parameters and so change their versions."""
    of = operands("cpu")
    of = with_parameters(of) if are_parameters else of
    expected = torch.autograd.grad(ours(of).square().sum(), trained(of))

    def run():
        torch._dynamo.reset()
        compiler = torch.compile(backend="aot_eager", fullgraph=True)
        with torch._dynamo.compiled_autograd._enable(compiler):
            for _ in range(2):
                with torch.no_grad():
                    for one in trained(of):
                        one.mul_(1)
                        one.grad = None
                launches()
                ours(of).square().sum().backward()
        return [launches(), *(one.grad for one in trained(of))]
    for launched, *found in each_way(run):
        assert launched["magnitude_backward"] == 1
        assert_same(found, expected)
