"""Calls that the C++ extension leaves to Python."""

import pytest
import torch
from compiled_nodes import each_way, error_of, node_of, operands_of
from dorajit import _native, cpp_extension
from dorajit.norms import precision
from linear_layers import BF16, F32, NAMES, SCALE, operands, ours, trained
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode


class Seeing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Watching:
    """Replaces the extension module: records the arguments of each call, and whether the extension served it."""

    def __init__(self, module):
        self.module, self.calls = module, []

    def _listed(self, name):
        def call(*arguments):
            out = getattr(self.module, name)(*arguments)
            self.calls.append((arguments, out is not None))
            return out
        return call

    def __getattr__(self, name):
        return self._listed(name) if name in ("linear", "forward") else getattr(self.module, name)


@pytest.fixture
def watched(compiled, monkeypatch):
    watching = Watching(compiled)
    monkeypatch.setattr(cpp_extension, "module", watching)
    return watching


def test_tensors_without_kernel_are_left_to_python(device, compiled):
    of = operands(device, trained=())
    given = operands_of(of)
    def forward(*arguments):
        return compiled.forward(*arguments, True)
    assert forward(*given) is not None
    for change in (lambda one: one.to("meta"), torch.Tensor.int, lambda one: one.to(torch.complex64)):
        assert forward(*(change(one) if isinstance(one, torch.Tensor) else one for one in given)) is None
    def with_one(at, one):
        return forward(*given[:at], one, *given[at + 1:])
    for at in 4, 5:  # gain and bias
        assert with_one(at, torch._neg_view(given[at])) is None
        assert with_one(at, torch._efficientzerotensor((40,), device=device)) is None
    for gain in given[4][:3], given[4].to_sparse(), given[4].int():
        assert with_one(4, gain) is None
    assert with_one(0, of["x"].reshape((1,) * 16 + (5, 24))) is None
    for at in 0, 2, 3:  # give one of these another type
        assert with_one(at, given[at].double()) is None


def test_gradients_without_kernel_are_left_to_python(device, compiled):
    of = operands(device)
    out = ours(of)
    kept = out.new_ones(5, 3), torch.ones_like(out)
    gain = torch.ones(40, device=device)
    def gradients(d_out, *saved):
        return compiled.gradients(d_out, of["x"], *(of[name].detach() for name in ("weight", "lora_A", "lora_B")),
                                  *saved, gain, gain, SCALE, True, True, True, True, F32, F32, F32, False)
    d_out = torch.ones_like(out)
    assert [one.shape for one in gradients(d_out, *kept)] == [(5, 24), (3, 24), (40, 3), (40,)]
    for wrong in d_out.double(), d_out.to("meta"), d_out.to_sparse(), torch._neg_view(d_out), d_out.numpy(force=True):
        assert gradients(wrong, *kept) is None
    assert gradients(d_out[:3], *kept) is None
    with Seeing():
        assert gradients(d_out, *kept) is None


def test_gains_without_kernel_are_left_to_python(device, compiled):
    of = {name: one.detach() for name, one in operands(device).items()}
    names = "weight", "lora_A", "lora_B", "magnitude"
    def gains(scale=SCALE, **others):
        return compiled.divisor_and_gain(*(others.get(name, of[name]) for name in names), scale)
    assert len(gains()) == 2
    for name in names:
        for wrong in (of[name].to("meta"), torch._neg_view(of[name]), of[name].int(), of[name][:0], of[name][:2],
                      of[name].numpy(force=True), of[name][None]):
            assert gains(**{name: wrong}) is None, (name, wrong)
    freed = of["weight"].clone()
    freed.untyped_storage().resize_(0)
    assert gains(weight=freed) is None
    assert gains(weight=of["weight"].t().contiguous().t()) is None
    for scale in 0.0, 1, None:
        assert gains(scale) is None


def test_arguments_of_wrong_types_are_left_to_python(compiled):
    of = operands("cpu", trained=())
    given = [*operands_of(of), *node_of(of)]
    assert compiled.linear(*given) is not None
    class Sub(torch.Tensor):
        pass
    for at, own in enumerate(given):
        if isinstance(own, torch.Tensor):
            for one in None, 3, "gain", own.numpy(), own.as_subclass(Sub):
                if at != 5 or one is not None:  # the bias is optional
                    assert compiled.linear(*given[:at], one, *given[at + 1:]) is None
    for scale in 1, None, "half", torch.tensor(0.5):
        assert compiled.linear(*given[:6], scale, *given[7:]) is None
    for call in (lambda: compiled.linear(*given[:-1]), lambda: compiled.linear(*given, True),
                 lambda: compiled.forward(*given), lambda: compiled.gradients(), lambda: compiled.divisor_and_gain(1),
                 lambda: compiled.configure(3, None), lambda: compiled.configure(_native.call_table())):
        with pytest.raises((TypeError, ValueError)):
            call()


def test_observed_calls_are_left_to_python(watched):
    of = operands("cpu", trained=())
    x = of["x"]
    ours(of)
    assert watched.calls.pop()[1]

    class Sub(torch.Tensor):
        pass
    with FakeTensorMode(allow_non_fake_inputs=True):
        ours(of)
    with Seeing():
        ours(of)
    for transform in (torch.func.vmap, lambda f: torch.func.grad(lambda x: f(x).sum()), torch.func.functionalize,
                      lambda f: torch.jit.trace(f, x, check_trace=False),
                      lambda f: make_fx(f)):
        for bind in lambda x: {**of, "x": x}, lambda x: of:  # on an operand of the call, and on another tensor
            transform(lambda x: ours(bind(x)) * x.sum())(x)
    with torch.autograd.forward_ad.dual_level():
        for name in NAMES:
            ours({**of, name: torch.autograd.forward_ad.make_dual(of[name], torch.ones_like(of[name]))})
    ours({**of, "x": x.as_subclass(Sub)})
    ours({name: one.to("meta") for name, one in of.items()})
    for name in "weight", "bias":  # the node has no gradients for these
        ours({**of, name: of[name].clone().requires_grad_()})
    assert not any(is_taken for _, is_taken in watched.calls)
    assert all(arguments[0].is_meta for arguments, _ in watched.calls)
    # Compiled code calls the operator, whose forward pass runs in the extension.
    torch.compile(lambda x: ours({**of, "x": x}) * x.sum(), backend="eager", fullgraph=True)(x)
    assert watched.calls.pop()[1]


@pytest.mark.parametrize("look_on", ["mode", "batch", "graph", "compiler"])
def test_observed_backward_passes_are_left_to_python(compiled, python_backward, look_on):
    of = operands("cpu")
    out = ours(of)
    d_out = torch.ones_like(out)
    if look_on == "mode":
        with Seeing():
            torch.autograd.grad(out, trained(of), d_out)
    elif look_on == "batch":
        torch.autograd.grad(out, trained(of), d_out.expand(3, 5, 40), is_grads_batched=True)
    elif look_on == "graph":
        torch.autograd.grad(out, trained(of), d_out, create_graph=True)
    else:
        torch._dynamo.reset()
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
            out.backward(d_out)
    assert python_backward


def test_cpp_node_raises_the_errors_of_the_python_node(device, compiled):
    of = operands(device)
    for name, change in (("x", lambda one: one[:, :-1]), ("x", torch.Tensor.bfloat16), ("weight", torch.Tensor.double),
                         ("bias", lambda one: one[:1]), ("bias", lambda one: one[:-1]), ("bias", torch.Tensor.double),
                         ("lora_A", lambda one: one[:2]), ("lora_B", lambda one: one.to("meta"))):
        wrong = {**of, name: change(of[name].detach())}
        found, expected = each_way(lambda: error_of(lambda: ours(wrong)))
        assert found == expected and found is not None


@pytest.mark.skipif(not hasattr(torch.ops.aten.addmm, "dtype"), reason="this PyTorch has no such products")
@pytest.mark.parametrize("types, is_wider", [((F32, F32), True), ((BF16, F32), True), ((F32, BF16), True),
                                             ((BF16, BF16), False)])
def test_gradients_of_float32_factors_of_16_bit_products_are_not_rounded(watched, monkeypatch, types, is_wider):
    """Only if PyTorch has such products for the device; CUDA always has."""
    of = operands("cpu", (BF16, BF16, F32), bias=False)
    for name, dtype in zip(("lora_A", "lora_B"), types):
        of[name] = of[name].detach().to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=BF16):
        for can_be in False, True:
            monkeypatch.setattr(precision, "is_mixed", lambda *_: can_be)
            out = ours(of)
            (*_, is_asked, _), was_taken = watched.calls.pop()
            assert was_taken and is_asked == (can_be and is_wider)
            try:
                found = torch.autograd.grad(out.float().square().sum(), [of["lora_A"], of["lora_B"]])
            except NotImplementedError:  # on a CPU
                assert is_asked
                continue
            for one, dtype in zip(found, types):
                assert torch.equal(one, one.bfloat16().to(dtype)) == (not can_be or dtype is BF16)
