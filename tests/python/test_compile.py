"""Operators under torch.compile, torch.export, modes and tracers; launch counters show which kernels ran."""

import dorajit
import pytest
import reference
import torch
from observers import Dispatching
from reference import SCALE, operands
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.usefixtures("fresh_compiler")
ops = torch.ops.dorajit


def loss(lora, base, gain):
    return dorajit.fused_dora_compose_autograd(lora * 2, base, gain, SCALE).square().sum()


def inplace_loss(lora, base, gain):
    return dorajit.fused_dora_compose(lora * 2, base, gain, SCALE).square().sum()


def class_loss(lora, base, gain):
    return dorajit.FusedDoRAComposeFunction.apply(lora * 2, base, gain, SCALE).square().sum()


@pytest.mark.parametrize("function, dynamic, backend", [
    (loss, True, "inductor"), (loss, False, "aot_eager"), (inplace_loss, True, "aot_eager"),
    (inplace_loss, False, "aot_eager"), (class_loss, False, "aot_eager")])
def test_compiled_training_step_runs_in_kernels(device, launches, function, dynamic, backend):
    tensors = operands((6, 32), device, torch.bfloat16, torch.float32, grad=True)
    eager = torch.autograd.grad(function(*tensors), tensors)
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=backend)
    launches()
    found = torch.autograd.grad(compiled(*tensors), tensors)
    assert launches() == {"compose_inner": 1, "backward": 1}
    torch.testing.assert_close(found, eager)


def test_compiled_function_with_other_shapes_is_not_recompiled(launches):
    graphs = []
    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward
    compiled = torch.compile(inplace_loss, fullgraph=True, dynamic=True, backend=backend)
    for rows in (6, 7, 9):
        tensors = operands((rows, 32), "cpu")
        torch.testing.assert_close(compiled(*tensors), inplace_loss(*tensors))
    assert len(graphs) == 1


def test_compiled_step_with_frozen_magnitude_runs_in_kernels(device, launches):
    lora, base, gain = operands((6, 32), device, grad=True)
    gain = gain.detach()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    launches()
    found = torch.autograd.grad(compiled(lora, base, gain), (lora, base))
    assert launches() == {"compose": 1, "backward": 1}
    torch.testing.assert_close(found, torch.autograd.grad(loss(lora, base, gain), (lora, base)))


def test_compiled_inference_in_place_writes_into_lora(device, launches):
    lora, base, gain = operands((6, 32), device)
    expected = reference.compose(lora, base, gain, SCALE)
    compiled = torch.compile(dorajit.fused_dora_compose, fullgraph=True)
    with torch.no_grad():
        out = compiled(lora, base, gain, SCALE)
    assert torch.equal(out, expected) and torch.equal(lora, expected)
    assert launches() == {"compose": 1}


def test_other_functions_compile_with_fullgraph(launches):
    def every(a, b, g, w):
        out, inner = dorajit.fused_dora_forward_and_inner(a, b, g, SCALE)
        grads = dorajit.compose_backward(out, inner, g, SCALE, needs_base_grad=False)
        return out, inner, grads[0], grads[2], dorajit.fused_norm_assembly(w, w, w, SCALE)[0]
    a, b, g = operands((6, 32), "cpu")
    eager = every(a, b, g, g)
    launches()
    found = torch.compile(every, fullgraph=True, backend="aot_eager")(a, b, g, g)
    assert launches() == {"compose_inner": 1, "backward": 1, "norm_assembly": 1}
    assert all(torch.equal(one, other) for one, other in zip(found, eager))


@pytest.mark.parametrize("grad", [False, True])
def test_operators_pass_opcheck(device, grad):
    lora, base, gain = operands((6, 32), device, grad=grad)
    terms = [torch.rand(8, device=device).requires_grad_(grad) for _ in range(3)]
    bias = torch.randn(32, device=device)
    for op, args in (
            (ops.compose, (lora, base, gain, SCALE)),
            (ops.compose_inner, (lora, base, gain, SCALE)),
            (ops.backward, (lora, base, gain, SCALE, [True, True, True], torch.float32)),
            (ops.backward, (lora, None, gain, SCALE, [True, False, False], torch.float32)),
            (ops.compose_residual, (lora, base, gain, None, SCALE)),
            (ops.compose_residual_inner, (lora, base, gain, bias, SCALE)),
            (ops.residual_backward, (lora, base, gain, SCALE, [True] * 3, *[torch.float32] * 2)),
            (ops.residual_backward, (lora, None, gain, SCALE, [False, True, False],
                                     *[torch.float32] * 2)),
            (ops.magnitude_backward, (lora, base, gain, bias, SCALE, [True] * 3, *[torch.float32] * 2, torch.bfloat16)),
            (ops.magnitude_backward, (lora, None, gain, None, SCALE, [True, False, False], *[torch.float32] * 3)),
            (ops.norm_assembly, (*terms, SCALE))):
        torch.library.opcheck(op.default, args)


class Layer(torch.nn.Module):
    def forward(self, lora, base, gain):
        return dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False)


def test_exported_program_keeps_operators_and_runs_in_kernels(tmp_path, launches):
    rows = torch.export.Dim("rows")
    tensors = operands((6, 32), "cpu")
    program = torch.export.export(Layer(), tuple(tensors), dynamic_shapes=({0: rows}, {0: rows}, None))
    targets = [str(node.target) for node in program.graph.nodes]
    assert "dorajit.compose.default" in targets
    torch.export.save(program, tmp_path / "layer.pt2")
    loaded = torch.export.load(tmp_path / "layer.pt2").module()
    tensors = operands((9, 32), "cpu")
    launches()
    assert torch.equal(loaded(*tensors), reference.compose(*tensors, SCALE))
    assert launches() == {"compose": 1}


def test_dispatch_modes_and_tracers_see_operators():
    lora, base, gain = operands((6, 32), "cpu")
    with Dispatching() as mode:
        dorajit.fused_dora_compose(lora, base, gain, SCALE)
        dorajit.fused_dora_compose_residual(lora, base, gain, SCALE)
    assert {"dorajit.compose.default", "dorajit.compose_residual.default"} <= {*mode.seen}
    graph = make_fx(Layer())(lora, base, gain)
    assert "dorajit.compose.default" in [str(node.target) for node in graph.graph.nodes]
    traced = torch.jit.trace(Layer(), (lora, base, gain))
    others = operands((6, 32), "cpu")
    assert torch.equal(traced(*others), reference.compose(*others, SCALE))


def test_operators_on_fake_and_meta_tensors_give_shapes():
    lora, base, gain = (tensor.to("meta") for tensor in operands((6, 32), "cpu", torch.bfloat16))
    out = dorajit.fused_dora_compose(lora, base, gain, SCALE, inplace=False)
    assert out.is_meta and out.shape == (6, 32) and out.dtype is torch.bfloat16
    with torch._subclasses.FakeTensorMode():
        lora, base, gain = operands((6, 32), "cpu")
        assert dorajit.fused_dora_compose(lora, base, gain, SCALE) is lora
        with pytest.raises(ValueError, match="`base` has shape"):
            dorajit.fused_dora_compose(lora, base[:3], gain, SCALE)


def test_tensor_subclass_runs_through_its_torch_dispatch(launches):
    class Logged(torch.Tensor):
        pass
    lora, base, gain = operands((6, 32), "cpu")
    out = dorajit.fused_dora_compose(lora.as_subclass(Logged), base, gain, SCALE, inplace=False)
    assert torch.equal(out, reference.compose(lora, base, gain, SCALE))
    assert launches() == {"compose": 1}
