"""torch.func's transforms inside torch.compile, and which of them operators do not go through."""

import dorajit
import pytest
import torch
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
def test_a_compiled_transform_gives_what_the_transform_gives(name, function):
    tensors = operands((6, 8), "cpu", torch.bfloat16, torch.float32)
    transformed = TRANSFORMS[name](function)
    expected = transformed(*tensors)
    compiled = torch.compile(transformed, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*tensors), expected)


def test_one_function_compiles_with_and_without_a_transform(launches):
    tensors = operands((6, 8), "cpu")
    plain = torch.compile(compose, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(plain(*tensors), compose(*tensors))
    launches()
    torch.compile(func.grad(compose), backend="aot_eager", fullgraph=True)(*tensors)
    assert launches() == {}
    plain(*tensors)
    assert launches() == {"compose": 1}


def test_an_operator_itself_refuses_a_transform_by_name():
    lora, base, gain = operands((6, 8), "cpu")
    with pytest.raises(RuntimeError, match="functorch transforms"):
        func.grad(lambda one: torch.ops.dorajit.compose(one, base, gain, SCALE).sum())(lora)
