"""Patched models are exported to programs that run without dorajit, and their operations can be counted."""

import contextlib
import io

import dorajit
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from observers import Dispatching
from peft_models import KINDS, assert_same, model_and_input, results

SWITCHES = [contextlib.nullcontext, dorajit.disabled]
pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=SWITCHES, ids=["enabled", "disabled"])
def switch(request):
    return request.param


@pytest.fixture
def model(kind, device, switch):
    with dorajit.patch_peft(strict=True), switch():
        yield model_and_input(kind, device)[0].eval()


def example(model):
    return model.base_model.model.example(next(model.parameters()).device)


@pytest.mark.parametrize("grad", [True, False])
def test_trace_of_jit_contains_no_operator_of_dorajit(model, grad):
    x, other = example(model), example(model)
    with torch.set_grad_enabled(grad):
        traced = torch.jit.trace(model, (x,))
        assert "dorajit" not in str(traced.inlined_graph.copy()).replace("/dorajit/", "")
        torch.testing.assert_close(traced(other), model(other))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_program_exported_while_dorajit_is_disabled_has_none_of_its_operators(model, switch, strict, grad):
    x, other = example(model), example(model)
    with torch.set_grad_enabled(grad):
        program = torch.export.export(model, (x,), strict=strict)
        found = [node for node in program.graph.nodes if "dorajit" in str(node.target)]
        assert bool(found) is (switch is not dorajit.disabled)
        torch.testing.assert_close(program.module()(other), model(other))


def test_operators_have_no_decompositions():
    """With CI in the environment, Inductor fails at an operator that has a decomposition and no lowering."""
    assert not [one for one in torch._decomp.decomposition_table if str(one).startswith("dorajit")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_model_is_exported_to_onnx(model, dynamo):
    pytest.importorskip("onnxscript", reason="the exporter is not installed: pip install onnxscript")
    from onnx.reference import ReferenceEvaluator
    x, file = example(model), io.BytesIO()
    if dynamo:
        torch.onnx.export(model, (x,), dynamo=True, verbose=False).save(file)
    else:
        torch.onnx.export(model, (x,), file, dynamo=False)
    evaluator = ReferenceEvaluator(file.getvalue())
    found, = evaluator.run(None, {evaluator.input_names[0]: x.cpu().numpy()})
    torch.testing.assert_close(torch.from_numpy(found), model(x).detach().cpu())


def test_disabled_model_runs_no_operator_of_dorajit(kind, device):
    model, x = model_and_input(kind, device)
    graphs = []
    with dorajit.patch_peft(strict=True), dorajit.disabled():
        expected = results(model, x)
        with Dispatching() as mode:
            assert_same(results(model, x), expected, 1e-5)
        assert mode.seen and not [one for one in mode.seen if one.startswith("dorajit.")]
        torch._dynamo.reset()
        model.compile(backend=lambda graph, _: graphs.append(graph.code) or graph)
        assert_same(results(model, x), expected, 1e-5)
        assert graphs and not [one for one in graphs if "dorajit" in one]


def flops(model, x):
    with FlopCounterMode(display=False) as counter:
        results(model, x)
    return counter.get_total_flops()


def test_flops_of_a_model_are_those_of_peft_without_products_with_the_identity(kind, device):
    model, x = model_and_input(kind, device)
    expected = flops(model, x)
    if kind in ("linear", "conv1d_gpt2"):
        expected -= 2 * 20 * 20 * 4  # PEFT multiplies lora_A with the identity matrix
    with dorajit.patch_peft(strict=True):
        assert flops(model, x) == expected
        with dorajit.disabled():
            assert flops(model, x) == expected
