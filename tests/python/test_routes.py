"""How a call runs under each possible observer."""

import dorajit
import pytest
import torch
from dorajit import testing
from dorajit.operations import eligibility
from dorajit.operations.table import operations
from observers import Dispatching
from reference import SCALE, operands
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode


class Own(torch.Tensor):
    pass


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


OPERATOR, EXPRESSION = "operator", "expression"
OBSERVED = {
    "plain": (lambda ask, lora: ask(lora), eligibility.NOBODY),
    "grad": (in_a_graph, eligibility.AUTOGRAD),
    "function mode": (inside(Overriding), eligibility.NOBODY),
    "dispatch mode": (inside(Dispatching), OPERATOR),
    "make_fx": (traced, OPERATOR),
    "jit trace": (traced_by_jit, EXPRESSION),
    "compile": (compiled, OPERATOR),
    "forward mode of others": (forward_mode_of_others, EXPRESSION),
    "subclass": (lambda ask, lora: ask(lora.as_subclass(Own)), OPERATOR),
    "forward mode": (forward_mode, EXPRESSION),
    "vmap": (lambda ask, lora: torch.vmap(lambda one: ask(one) + one)(lora[None]), EXPRESSION),
    "func.grad": (lambda ask, lora: torch.func.grad(lambda one: (ask(one) + one).sum())(lora), EXPRESSION),
    "jvp": (lambda ask, lora: torch.func.jvp(lambda one: ask(one) + one, (lora,), (lora,)), EXPRESSION),
}


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("observe, expected", OBSERVED.values(), ids=OBSERVED)
def test_way_of_a_call_follows_from_the_observer(observe, expected):
    lora, base, gain = operands((4, 6), "cpu")
    found = []

    def ask(one):
        seen = eligibility.SOMEBODY
        if not torch.compiler.is_compiling():
            seen = eligibility.who_sees(one, base, gain, SCALE)
            made = operations["compose"].at_once(one, base, gain, True, SCALE)
            assert (type(made) is not int) == (seen == eligibility.NOBODY)
        if seen == eligibility.SOMEBODY:
            seen = OPERATOR if eligibility.why_expression(one, base, gain) is None else EXPRESSION
        found.append(seen)
        return one
    observe(ask, lora)
    assert found == [expected]


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
