"""The C++ extension: that it is used, and what it leaves to Python."""

import threading
import time
import warnings
import weakref

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import dorajit
from dorajit import _native, autograd, cpp_extension, eligibility
from reference import SCALE, operands


@pytest.fixture
def compiled(compiled_extension, monkeypatch):
    """The extension, in force."""
    monkeypatch.setattr(cpp_extension, "module", compiled_extension)
    return compiled_extension


@pytest.fixture
def alone(compiled):
    """Python is not asked for backward passes, which the extension may leave to it."""
    def differentiate(*arguments):
        raise AssertionError("left to Python")
    compiled.configure(_native.call_table(), differentiate)
    yield
    compiled.configure(_native.call_table(), autograd._differentiate)


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
        cpp_extension.module = module
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
        cpp_extension.module = module
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
        for inplace in False, True:
            assert compiled.compose(*operands_, SCALE, inplace) is None
        assert compiled.compose_residual(*operands_, None, SCALE) is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        nested = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], device=device)
    for at in range(3):
        tensors = [lora, base, gain]
        tensors[at] = nested
        assert compiled.compose(*tensors, SCALE, False) is None
    assert compiled.compose_residual(lora, base, gain, nested, SCALE) is None
    assert compiled.compose_residual(lora, base.double(), gain, None, SCALE) is None
    assert compiled.compose_residual(lora, base, gain, gain[:3], SCALE) is None


def test_other_arguments_are_left_to_python(compiled):
    lora, base, gain = operands((4, 8), "cpu")
    class Sub(torch.Tensor):
        pass
    for one in None, 3, "gain", gain.numpy(), gain.as_subclass(Sub):
        assert compiled.compose(lora, base, one, SCALE, False) is None
        assert compiled.compose_residual(one, base, gain, None, SCALE) is None
        assert one is None or compiled.compose_residual(lora, base, gain, one, SCALE) is None
    for scale in 1, None, "half", torch.tensor(0.5):
        assert compiled.compose(lora, base, gain, scale, False) is None
        assert compiled.compose_residual(lora, base, gain, None, scale) is None
    for call in (lambda: compiled.compose(lora, base, gain, SCALE),
                 lambda: compiled.compose_residual(lora, base, gain, SCALE),
                 lambda: compiled.configure(3, None)):
        with pytest.raises((TypeError, ValueError)):
            call()


def test_who_else_has_a_say_is_left_to_python(compiled):
    lora, base, gain = operands((4, 8), "cpu")

    def are_left(*tensors, bias=None):
        found = [compiled.compose(*tensors, SCALE, inplace) for inplace in (False, True)]
        return [*found, compiled.compose_residual(*tensors, bias, SCALE)] == [None] * 3
    assert not are_left(lora, base, gain)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert are_left(lora, base, gain)
    seen = []
    torch.func.vmap(lambda x: seen.append(are_left(lora, base, gain)) or x)(lora)
    torch.func.grad(lambda x: seen.append(are_left(lora, base, gain)) or x.sum())(lora)
    torch.jit.trace(lambda x: seen.append(are_left(lora, base, gain)) or x, lora, check_trace=False)
    assert len(seen) == 3 and all(seen)
    with torch.autograd.forward_ad.dual_level():
        for at in range(3):
            tensors = [lora, base, gain]
            tensors[at] = torch.autograd.forward_ad.make_dual(tensors[at], torch.ones_like(tensors[at]))
            assert are_left(*tensors)
    trained = gain.clone().requires_grad_()
    assert compiled.compose_residual(lora, base, gain, trained, SCALE) is None
    assert compiled.compose(lora, base, trained, SCALE, True) is None
    with torch.no_grad():
        assert compiled.compose_residual(lora, base, gain, trained, SCALE) is not None
        assert compiled.compose(lora, base, trained, SCALE, True) is lora
    with torch.inference_mode():
        made = lora.clone()
        assert compiled.compose(made, base, gain, SCALE, True) is made
    assert compiled.compose(made, base, gain, SCALE, True) is None


@pytest.mark.parametrize("dtype, gain_dtype", [(torch.float32, torch.float32),
                                               (torch.bfloat16, torch.float32)])
def test_without_a_graph_the_same_bits(device, launches, compiled, dtype, gain_dtype):
    lora, base, gain = operands((5, 24), device, dtype, gain_dtype)
    bias = torch.randn(24, device=device).to(dtype)
    found = []
    for module in compiled, None:
        cpp_extension.module = module
        copy = lora.clone()
        version = copy._version
        results = [dorajit.fused_dora_compose(lora, base, gain, SCALE, False),
                   dorajit.fused_dora_compose(copy, base, gain, SCALE),
                   dorajit.fused_dora_compose_residual(lora, base, gain, SCALE),
                   dorajit.fused_dora_compose_residual(lora, base, gain[None], SCALE, bias)]
        assert results[1] is copy and copy._version == version + 1
        assert not any(one.requires_grad for one in results)
        assert launches() == {"compose": 2, "compose_residual": 2}
        found.append(results)
    assert all(torch.equal(one, other) for one, other in zip(*found))


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


def test_only_some_gradients_are_the_same_launches(device, launches, compiled, alone, form):
    """Which kernels a backward pass runs is known in its forward pass."""
    tensors = operands((4, 6), device, grad=True)
    for module in compiled, None:
        cpp_extension.module = module
        out = form(*tensors)
        seen = []
        out.grad_fn.register_hook(lambda given, _: seen.append([one is None for one in given[:3]]))
        torch.autograd.grad(out, tensors[0], torch.ones_like(out))
        assert seen == [[False] * 3]


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


def is_gone():
    """Whether the last node is; the thread that ran it may hold it for a moment."""
    patience = time.monotonic() + 20
    while Watched.alive() is not None and time.monotonic() < patience:
        time.sleep(0.001)
    return Watched.alive() is None


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_leave_no_graph_behind(device, compiled, form, reentrant):
    lora, base, gain = operands((4, 8), device, grad=True)
    out = checkpoint(lambda x: form(Watched.apply(x), base, gain), lora, use_reentrant=reentrant)
    out.sum().backward()
    # That of the recomputation, which ends where the last tensor that is needed is saved.
    del out
    assert is_gone()


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
        assert is_gone()


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
        cpp_extension.module = module
        torch._dynamo.reset()
        launches()
        compiler = torch.compile(backend="aot_eager", fullgraph=True)
        with torch._dynamo.compiled_autograd._enable(compiler):
            form(*tensors).square().sum().backward()
        assert {name.removeprefix("residual_") for name in launches()} >= {"backward"}
        for tensor, one in zip(tensors, expected):
            assert torch.equal(tensor.grad, one)
            tensor.grad = None
