"""torch.func transforms inside torch.compile, and operators inside transforms."""

import dorajit
import processes
import pytest
import torch
from dorajit.operations import expression
from reference import SCALE, operands

func = torch.func


def compose(lora, base, gain):
    return dorajit.fused_dora_compose(lora * 2, base, gain, SCALE, inplace=False).square().sum()


def in_place(lora, base, gain):
    return dorajit.fused_dora_compose(lora * 2, base, gain, SCALE).square().sum()


def inner(lora, base, gain):
    out, kept = dorajit.fused_dora_forward_and_inner(lora * 2, base, gain, SCALE)
    return (out * kept).sum()


def backward(lora, base, gain):
    return sum(one.square().sum() for one in dorajit.compose_backward(lora, base, gain, SCALE))


def norm(lora, base, gain):
    return dorajit.fused_norm_assembly(lora.abs() + 1, base.abs(), lora * lora, SCALE)[0].sum()


TRANSFORMS = {
    "grad": lambda f: func.grad(f, argnums=(0, 1)),
    "vmap": lambda f: func.vmap(f, in_dims=(0, 0, None)),
    "jvp": lambda f: lambda *tensors: func.jvp(f, tensors, tensors),
}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


@pytest.mark.parametrize("name, function", [
    *(("grad", one) for one in (compose, in_place, inner, backward, norm)),
    ("vmap", in_place), ("vmap", backward), ("jvp", compose)])
def test_compiled_transform_matches_eager_transform(name, function):
    tensors = operands((6, 8), "cpu", torch.bfloat16, torch.float32)
    transformed = TRANSFORMS[name](function)
    expected = transformed(*tensors)
    compiled = torch.compile(transformed, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*tensors), expected)


def test_compiled_transform_works_as_first_call_of_a_process():
    assert processes.run("""
def loss(lora): return dorajit.fused_dora_compose(lora, base, gain, 0.5, False).sum()
compiled = torch.compile(torch.func.grad(loss), backend="aot_eager", fullgraph=True)
print(torch.equal(compiled(lora), (0.5 * gain).expand(4, 32)))
""") == "True"


def test_function_compiles_with_and_without_transform(launches):
    tensors = operands((6, 8), "cpu")
    plain = torch.compile(compose, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(plain(*tensors), compose(*tensors))
    launches()
    torch.compile(func.grad(compose), backend="aot_eager", fullgraph=True)(*tensors)
    assert launches() == {}
    plain(*tensors)
    assert launches() == {"compose": 1}


OPERATORS = {
    "compose": (lambda op, *of: op(*of, SCALE), expression.compose),
    "compose_inner": (lambda op, *of: sum(op(*of, SCALE)),
                      lambda *of: sum(expression.compose_inner(*of))),
    "backward": (lambda op, *of: sum(op(*of, SCALE, [True, True, True], torch.float64)),
                 lambda *of: sum(expression.backward(*of, (True, True, True), torch.float64))),
    "norm_assembly": (lambda op, *of: op(*of, SCALE), expression.norm_assembly),
    "compose_residual": (lambda op, *of: op(*of, None, SCALE),
                         lambda *of: residual(*of)[0]),
    "compose_residual_inner": (lambda op, *of: sum(op(*of, None, SCALE)), lambda *of: sum(residual(*of))),
    "residual_backward": (
        lambda op, *of: sum(op(*of, SCALE, [True, True, True], torch.float64, torch.float64)),
        lambda *of: sum(expression.residual_backward(*of, (True, True, True), torch.float64, torch.float64))),
    "magnitude_backward": (
        lambda op, *of: sum(op(*of, of[2] + 1, SCALE, [True, True, True], *[torch.float64] * 3)),
        lambda d_out, inner, gain, scale: sum(expression.magnitude_backward(
            d_out, inner, gain, gain + 1, scale, (True, True, True), *[torch.float64] * 3))),
}


def residual(lora, result, gain, scale):
    return expression.compose_residual(lora, result, gain, None, scale, torch.float64)


@pytest.mark.parametrize("transform", [
    lambda f: lambda *of: func.jvp(f, of, of)[1],
    lambda f: func.jacfwd(f, argnums=(0, 1, 2)),
    lambda f: func.grad(lambda *of: f(*of).square().sum(), argnums=(0, 1, 2)),
    lambda f: func.hessian(lambda *of: f(*of).square().sum(), argnums=1),
], ids=["jvp", "jacfwd", "grad", "hessian"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_inside_transforms_match_functions(name, transform, device):
    through, plain = OPERATORS[name]
    operator = getattr(torch.ops.dorajit, name)
    tensors = [one.abs() + 0.5 for one in operands((3, 4), device, torch.float64, torch.float64)]
    if name == "norm_assembly":  # its operands have one shape
        tensors[2] = tensors[2].expand(3, 4).contiguous()
    found = transform(lambda *of: through(operator, *of))(*tensors)
    torch.testing.assert_close(found, transform(lambda *of: plain(*of, SCALE))(*tensors))


@pytest.mark.parametrize("at", range(3))
def test_operator_in_forward_mode_keeps_tangents(at, device, launches):
    tensors = operands((6, 8), device)
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        followed = [*tensors]
        followed[at] = forward_ad.make_dual(tensors[at], torch.ones_like(tensors[at]))
        out, function = (forward_ad.unpack_dual(one).tangent for one in (
            torch.ops.dorajit.compose(*followed, SCALE),
            dorajit.fused_dora_compose(*followed, SCALE, inplace=False)))
        assert function is not None
        torch.testing.assert_close(out, function)
    assert launches() == {}


@pytest.mark.parametrize("compiled", [False, True])
def test_functions_inside_transforms_accept_the_same_arguments(compiled):
    lora, base, gain = operands((3, 4), "cpu")
    def loss(base, one):
        if compiled:
            return dorajit.fused_dora_compose(one, base, gain, SCALE, inplace=False).sum()
        return torch.ops.dorajit.compose(one, base, gain, SCALE).sum()
    for wrong, error in ((base[0], ValueError), (base.int(), TypeError)):
        function = func.grad(lambda one: loss(wrong, one))
        with pytest.raises(error, match="`base`"):
            (torch.compile(function, backend="aot_eager") if compiled else function)(lora)


@pytest.mark.parametrize("compiled", [False, True])
def test_force_native_inside_transform_raises(compiled):
    lora, base, gain = operands((3, 4), "cpu")
    function = (func.grad(lambda one: compose(one, base, gain)) if compiled else
                func.grad(lambda one: torch.ops.dorajit.compose(one, base, gain, SCALE).sum()))
    with dorajit.force_native(), pytest.raises(dorajit.FallbackError, match="a transform"):
        (torch.compile(function, backend="aot_eager") if compiled else function)(lora)
