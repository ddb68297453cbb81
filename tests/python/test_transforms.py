"""Transforms of torch.func, forward mode and tracers, also inside torch.compile: functions, norms and layers are operators
there, and operators have the results of the functions."""

import functools
import itertools

import dorajit
import processes
import pytest
import torch
from dorajit import testing
from dorajit.operations import expression
from reference import SCALE, assert_norm, exact_norm, operands
from torch.fx.experimental.proxy_tensor import make_fx

func = torch.func
pytestmark = pytest.mark.usefixtures("fresh_compiler")


def compose(lora, base, gain):
    return dorajit.fused_dora_compose(lora * 2, base, gain, SCALE, inplace=False).square().sum()


def in_place(lora, base, gain):
    return dorajit.fused_dora_compose(lora * 2, base, gain, SCALE).square().sum()


def inner(lora, base, gain):
    out, kept = dorajit.fused_dora_forward_and_inner(lora * 2, base, gain, SCALE)
    return (out * kept).sum()


def backward(lora, base, gain):
    return sum(one.square().sum() for one in dorajit.compose_backward(lora, base, gain, SCALE))


def composed_residual(lora, base, gain):
    return dorajit.fused_dora_compose_residual(lora, base, gain, SCALE, gain).square().sum()


def norm(lora, base, gain):
    return dorajit.fused_norm_assembly(lora.abs() + 1, base.abs(), lora * lora, SCALE)[0].sum()


TRANSFORMS = {
    "grad": lambda f: func.grad(f, argnums=(0, 1)),
    "vmap": lambda f: func.vmap(f, in_dims=(0, 0, None)),
    "jvp": lambda f: lambda *tensors: func.jvp(f, tensors, tensors),
}


@pytest.mark.parametrize("name, function", [
    *(("grad", one) for one in (compose, in_place, inner, backward, composed_residual, norm)),
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
    "fused_dora_compose": (lambda *of: dorajit.fused_dora_compose(*of, SCALE, inplace=False), expression.compose),
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
    lambda f: lambda *of: func.vmap(func.grad(lambda *row: f(*row).square().sum(), argnums=2),
                                    in_dims=tuple(0 if one.dim() == 2 else None for one in of))(*of),
], ids=["jvp", "jacfwd", "grad", "hessian", "vmap of grad"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_and_functions_inside_transforms_match_expressions(name, transform, device):
    through, plain = OPERATORS[name]
    if hasattr(torch.ops.dorajit, name):
        through = functools.partial(through, getattr(torch.ops.dorajit, name))
    tensors = [one.abs() + 0.5 for one in operands((3, 4), device, torch.float64, torch.float64)]
    if name == "norm_assembly":  # its operands have one shape
        tensors[2] = tensors[2].expand(3, 4).contiguous()
    found = transform(through)(*tensors)
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


def factors(device="cpu", rows=24, columns=40, rank=4):
    return [torch.randn(shape, device=device) for shape in ((rows, columns), (rank, columns), (rows, rank))]


def trained_layer(device, dropout=0.0):
    layer = dorajit.nn.DoRALinear.from_linear(torch.nn.Linear(40, 24, device=device), rank=4, alpha=8, dropout=dropout)
    with torch.no_grad():
        layer.lora_B.weight.normal_()
        layer.lora_magnitude_vector.mul_(1 + 0.1 * torch.rand_like(layer.lora_magnitude_vector))
    return layer


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_traced_norm_depends_on_its_arguments(device, mode):
    graph = make_fx(lambda *of: dorajit.weight_norm(*of, SCALE), tracing_mode=mode)(*factors(device))
    given = factors(device)
    assert_norm(graph(*given), exact_norm(*given, SCALE))
    assert "dorajit.row_norms.default" in [str(node.target) for node in graph.graph.nodes]


def test_norm_under_functionalization_matches_dense_norm(device):
    given = factors(device)
    found = torch.func.functionalize(lambda *of: dorajit.weight_norm(*of, SCALE))(*given)
    assert_norm(found, exact_norm(*given, SCALE))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("stacked", [(0,), (1, 2), (0, 1, 2)])
def test_vmap_over_adapters_gives_each_norm(device, stacked):
    many = [factors(device) for _ in range(3)]
    dims = tuple(0 if i in stacked else None for i in range(3))
    given = [torch.stack([one[i] for one in many]) if i in stacked else many[0][i] for i in range(3)]
    found = torch.vmap(lambda *of: dorajit.weight_norm(*of, SCALE), dims)(*given)
    for number, norms in enumerate(found):
        assert_norm(norms, exact_norm(*(one[number] if dim == 0 else one for one, dim in zip(given, dims)), SCALE))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_functional_ensemble_of_layers_matches_each_layer(device):
    layers = [trained_layer(device) for _ in range(3)]
    for layer in layers[1:]:
        layer.base_layer.load_state_dict(layers[0].base_layer.state_dict())
    parameters, _ = torch.func.stack_module_state(layers)
    x = torch.randn(5, 40, device=device)
    found = torch.vmap(lambda of: torch.func.functional_call(layers[0], of, (x,)))(parameters)
    torch.testing.assert_close(found, torch.stack([layer(x) for layer in layers]))


def test_sliced_dropout_under_a_mode_is_not_sliced(monkeypatch):
    layer, x = trained_layer("cpu", 0.5), torch.randn(5, 40)
    monkeypatch.setattr("dorajit.layers.dropout.columns_at_once", lambda *_: 8)
    torch.manual_seed(3)
    graph = make_fx(lambda of: layer(of))(x)
    before = testing.launch_counts()
    torch.manual_seed(3)
    found = graph(x)
    assert testing.launch_counts() != before
    torch.manual_seed(3)
    torch.testing.assert_close(found, layer(x))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_layer_can_be_traced_after_it_has_run(device):
    layer, x = trained_layer(device), torch.randn(5, 40, device=device)
    layer(x).sum().backward()
    traced = torch.jit.trace(layer, (x,))  # traces twice and compares
    others = torch.randn(7, 40, device=device)
    torch.testing.assert_close(traced(others), layer(others))


@pytest.mark.parametrize("function", ["fused_dora_compose_autograd", "fused_dora_compose_residual"])
def test_compiled_function_in_forward_mode_keeps_tangents(function):
    call = getattr(dorajit, function)
    lora, base, gain = torch.randn(4, 6), torch.randn(4, 6), torch.rand(6)
    def derivative(tangent):
        with torch.autograd.forward_ad.dual_level():
            out = call(torch.autograd.forward_ad.make_dual(lora, tangent), base, gain, SCALE)
            return torch.autograd.forward_ad.unpack_dual(out).tangent
    tangent = torch.randn(4, 6)
    for run in (derivative, torch.compile(derivative, backend="aot_eager")):
        torch.testing.assert_close(run(tangent), gain * SCALE * tangent)


@pytest.mark.parametrize("function", ["fused_dora_compose_autograd", "fused_dora_compose_residual"])
def test_compiled_function_obeys_the_switch_of_the_backward_pass(function, launches, switch):
    switch("PEFT_DORA_FUSED_BACKWARD", "0")
    given = [torch.randn(4, 6).requires_grad_(), torch.randn(4, 6), torch.rand(6)]
    call = getattr(dorajit, function)
    out = torch.compile(lambda *of: call(*of, SCALE), fullgraph=True, backend="aot_eager")(*given)
    out.sum().backward()
    assert launches() == {}
    torch.testing.assert_close(out.detach(), call(*(one.detach() for one in given), SCALE))


@pytest.mark.parametrize("function, transform, is_compiled", [
    ("compose", "grad", False), *itertools.product(
        ("fused_dora_compose", "fused_dora_forward_and_inner", "fused_dora_compose_residual"), ("vmap", "grad"),
        (False, True))])
def test_force_native_inside_transforms_raises(function, transform, is_compiled):
    lora, base, gain = torch.randn(4, 6), torch.randn(4, 6), torch.rand(6)
    owner = torch.ops.dorajit if function == "compose" else dorajit
    options = {"inplace": False} if function == "fused_dora_compose" else {}
    def call(one):
        found = getattr(owner, function)(one, base[0], gain, SCALE, **options)
        return found[0] if isinstance(found, tuple) else found
    transformed, given = ((torch.vmap(call), lora) if transform == "vmap" else
                          (torch.func.grad(lambda one: call(one).sum()), lora[0]))
    assert transformed(given).shape == given.shape
    run = torch.compile(transformed, backend="aot_eager") if is_compiled else transformed
    with dorajit.force_native(), pytest.raises(dorajit.FallbackError, match="a transform"):
        run(given)


@pytest.mark.parametrize("function, name", [
    (lambda *of: dorajit.fused_dora_compose(*of, SCALE, inplace=False), "compose"),
    (lambda *of: dorajit.fused_dora_compose(of[0] * 1, *of[1:], SCALE), "compose"),
    (lambda *of: dorajit.fused_dora_compose_residual(*of, SCALE), "compose_residual"),
    (lambda *of: dorajit.fused_dora_forward_and_inner(*of, SCALE)[1], "compose_inner"),
    (lambda lora, base, gain: dorajit.fused_norm_assembly(gain, gain, gain, SCALE)[0], "norm_assembly"),
    (lambda lora, base, gain: dorajit.weight_norm(lora, base[:2], lora[:, :2], SCALE), "row_norms"),
])
def test_pre_dispatch_traces_contain_operators(function, name):
    tensors = torch.randn(4, 6), torch.randn(4, 6), torch.rand(6)
    traced = make_fx(function, pre_dispatch=True)(*tensors)
    assert f"dorajit.{name}.default" in [str(node.target) for node in traced.graph.nodes]
    others = [torch.randn_like(one).abs() for one in tensors]
    torch.testing.assert_close(traced(*others), function(*others))


def test_function_compiled_in_forward_mode_runs_natively_outside(launches):
    function = torch.compile(lambda *of: dorajit.fused_dora_compose(*of, SCALE, inplace=False), backend="aot_eager")
    tensors = torch.randn(4, 6), torch.randn(4, 6), torch.rand(6)
    with torch.autograd.forward_ad.dual_level():
        expected = function(*tensors)
    assert launches() == {}
    assert torch.equal(function(*tensors), expected)
    assert launches() == {"compose": 1}
