"""The route of a call under each possible observer."""

import dorajit
import pytest
import torch
from dorajit import testing
from dorajit.operations import eligibility
from dorajit.operations.eligibility import Route
from dorajit.operations.table import operations
from reference import SCALE, operands
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Own(torch.Tensor):
    pass


class Dispatching(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Overriding(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def inside(mode):
    def observe(ask, lora):
        with mode():
            ask(lora)
    return observe


def in_a_graph(ask, lora):
    ask(lora.clone().requires_grad_())


def traced(ask, lora):
    make_fx(lambda one: ask(one) + one)(lora)


def traced_by_jit(ask, lora):
    torch.jit.trace(lambda one: ask(one) + one, lora, check_trace=False)


def compiled(ask, lora):
    torch._dynamo.reset()
    torch.compile(ask, backend="eager")(lora)


def forward_mode(ask, lora):
    with torch.autograd.forward_ad.dual_level():
        ask(torch.autograd.forward_ad.make_dual(lora, lora))


def forward_mode_of_others(ask, lora):
    with torch.autograd.forward_ad.dual_level():
        ask(lora)


def is_in_forward_mode():
    return torch.autograd.forward_ad._current_level >= 0


OBSERVED = [
    (lambda ask, lora: ask(lora), Route.NATIVE, True),
    (in_a_graph, Route.NATIVE, False),
    (inside(Overriding), Route.NATIVE, True),
    (inside(Dispatching), Route.OPERATOR, False),
    (traced, Route.OPERATOR, False),
    (traced_by_jit, Route.EXPRESSION, False),
    (compiled, Route.OPERATOR, None),
    (forward_mode_of_others, Route.OPERATOR, False),
    (lambda ask, lora: ask(lora.as_subclass(Own)), Route.OPERATOR, False),
    (forward_mode, Route.EXPRESSION, False),
    (lambda ask, lora: torch.vmap(lambda one: ask(one) + one)(lora[None]), Route.EXPRESSION, False),
    (lambda ask, lora: torch.func.grad(lambda one: (ask(one) + one).sum())(lora), Route.EXPRESSION, False),
    (lambda ask, lora: torch.func.jvp(lambda one: ask(one) + one, (lora,), (lora,)), Route.EXPRESSION, False),
]
NAMES = ["plain", "grad", "function mode", "dispatch mode", "make_fx", "jit trace", "compile",
         "forward mode of others", "subclass", "forward mode", "vmap", "func.grad", "jvp"]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("observe, route, is_one_launch", OBSERVED, ids=NAMES)
def test_route_follows_from_the_observer(observe, route, is_one_launch):
    lora, base, gain = operands((4, 6), "cpu")
    found = []

    def ask(one):
        found.append(eligibility.route(one, base, gain, SCALE, has_node=True))
        if is_one_launch is not None:
            seen = eligibility.who_sees(one, base, gain, SCALE)
            assert (seen == eligibility.NOBODY) == is_one_launch
            assert (type(operations["compose"].at_once(one, base, gain, True, SCALE)) is int) != is_one_launch
        return one
    observe(ask, lora)
    assert found == [route]


@pytest.mark.parametrize("change, options", [
    (lambda lora, base, gain: (lora.requires_grad_(), base, gain), {}),
    (lambda lora, base, gain: (lora.to(torch.complex64).requires_grad_(), base, gain), {"has_node": True}),
])
def test_graph_without_node_does_not_take_the_native_route(change, options):
    tensors = change(*operands((4, 6), "cpu"))
    expected = Route.EXPRESSION if options else Route.OPERATOR
    assert eligibility.route(*tensors, SCALE, **options) is expected


def test_trained_constant_takes_the_expression():
    lora, base, gain = operands((4, 6), "cpu", grad=True)
    bias = gain.detach().clone()
    given = lora, base, gain, bias, SCALE
    assert eligibility.route(*given, has_node=True, constant=bias) is Route.NATIVE
    assert eligibility.route(*given, has_node=True, constant=bias.requires_grad_()) is Route.EXPRESSION


def test_switch_of_backward_affects_only_calls_that_build_graphs(without_switches, monkeypatch):
    monkeypatch.setenv("PEFT_DORA_FUSED_BACKWARD", "0")
    dorajit.invalidate_environment()
    lora, base, gain = operands((4, 6), "cpu")
    assert eligibility.route(lora, base, gain, SCALE, has_node=True) is Route.NATIVE
    assert eligibility.route(lora.requires_grad_(), base, gain, SCALE, has_node=True) is Route.EXPRESSION


def test_scale_that_is_no_float_is_not_launched_at_once():
    assert eligibility.who_sees(*operands((4, 6), "cpu"), 1) == eligibility.SOMEBODY
    assert testing.launch_counts().keys() >= {"compose", "backward"}


def test_call_at_once_in_place_increments_the_version():
    lora, base, gain = operands((4, 6), "cpu")
    at_once = operations["compose"].at_once
    expected = dorajit.fused_dora_compose(lora, base, gain, SCALE, False)
    before = lora._version
    assert at_once(lora, base, gain, lora, SCALE) is lora
    assert lora._version == before + 1 and lora.equal(expected)
    with torch.inference_mode():
        frozen = expected.clone()
        assert at_once(frozen, base, gain, frozen, SCALE) is frozen
    kept = frozen.clone()
    assert at_once(frozen, base, gain, frozen, SCALE) == eligibility.NOBODY and frozen.equal(kept)


def test_call_at_once_without_kernel_does_nothing():
    lora, base, gain = operands((4, 6), "cpu")
    at_once, counted = operations["compose"].at_once, testing.launch_counts()
    for given in ((lora.int(), base, gain), (lora, base[:2], gain), (lora, base, None)):
        assert type(at_once(*given, True, SCALE)) is int
    with pytest.raises(dorajit.Error, match="different shapes"):
        operations["compose"].launch(lora, base[:2], gain, True, SCALE)
    assert testing.launch_counts() == counted


def test_output_passed_as_true_has_the_type_of_its_model():
    lora, base, gain = operands((4, 6), "cpu")
    d_lora, d_base, d_gain = operations["backward"].launch(lora.double(), None, gain.double(), True, False, False,
                                                           SCALE)
    assert d_lora.dtype is torch.float64 and d_base is None and d_gain is None
    out, inner = operations["compose_inner"].launch(lora.bfloat16(), base, gain, True, torch.float32, SCALE)
    assert (out.dtype, inner.dtype) == (torch.bfloat16, torch.float32)
