"""Environment variables that switch kernels off or set a budget: which kernels run, and when variables are read."""

import os

import dorajit
import processes
import pytest
import torch
from peft_models import KINDS, assert_same, model_and_input, results
from reference import SCALE, operands, perturb

NORM = {"norm": 1}
pytestmark = pytest.mark.usefixtures("without_switches")
ALL, FORWARD, NONE = "all", "forward", "none"  # the kernels that run: also in training, only without a graph, none


def of_compose(call):
    return call, {"compose_inner": 1, "backward": 1}, {"compose": 1}


FUNCTIONS = {
    "compose": of_compose(lambda *of: dorajit.fused_dora_compose(*of, SCALE, inplace=False)),
    "compose_autograd": of_compose(lambda *of: dorajit.fused_dora_compose_autograd(*of, SCALE)),
    "forward_and_inner": (lambda *of: dorajit.fused_dora_forward_and_inner(*of, SCALE)[0],
                          {"compose_inner": 1, "backward": 1}, {"compose_inner": 1}),
    "compose_residual": (lambda *of: dorajit.fused_dora_compose_residual(*of, SCALE),
                         {"compose_residual": 1, "residual_backward": 1}, {"compose_residual": 1})}
TRAINING = {**NORM, "compose_residual": 1, "residual_backward": 1}
INFERENCE = {**NORM, "compose_residual": 1}


def ran(model, x, layer_launches):
    """(launches of a training step, launches of inference)."""
    layer_launches()
    results(model, x)
    training = layer_launches()
    with torch.no_grad():
        model(x)
    return training, layer_launches()


VALUES = pytest.mark.parametrize("variable, text, which", [
    *(("PEFT_DORA_FUSED", text, NONE) for text in ("0", "false", "FALSE", " False ")),
    *(("PEFT_DORA_FUSED", text, ALL) for text in ("1", "True", "TRUE", "")),
    *(("PEFT_DORA_FUSED_BACKWARD", text, FORWARD) for text in ("0", "False", "FALSE")),
    *(("PEFT_DORA_FUSED_BACKWARD", text, ALL) for text in ("1", "TRUE"))])


@VALUES
@pytest.mark.parametrize("name", FUNCTIONS)
def test_variables_select_the_kernels_of_functions(device, launches, switch, name, variable, text, which):
    function, training, inference = FUNCTIONS[name]
    leaves = operands((4, 8), device, grad=True)
    plain = [one.detach() for one in leaves]
    def step():
        out = function(*leaves)
        return out, torch.autograd.grad(out.sum(), leaves)
    expected = step()
    switch(variable, text)
    launches()
    found = step()
    assert launches() == (training if which == ALL else {})
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], rtol=1e-5, atol=1e-5)
    for given in plain, leaves:
        with torch.no_grad():
            assert torch.equal(function(*given), expected[0])
        assert launches() == ({} if which == NONE else inference)


@VALUES
@pytest.mark.parametrize("kind", ["nn", "linear", "conv2d", "embedding"])
def test_variables_select_the_kernels_of_layers(device, layer_launches, switch, kind, variable, text, which):
    if kind == "nn":
        model = perturb(dorajit.nn.DoRALinear(torch.nn.Linear(20, 12, device=device), 4))
        x = torch.randn(3, 20, device=device)
    else:
        model, x = model_and_input(kind, device)
    with dorajit.patch_peft(strict=True):
        expected = results(model, x)
        switch(variable, text)
        assert ran(model, x, layer_launches) == {ALL: (TRAINING, INFERENCE), FORWARD: (NORM, INFERENCE),
                                                 NONE: ({}, {})}[which]
        assert_same(results(model, x), expected, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lora_dropout", [0.0, 0.5])
def test_kernels_off_launches_nothing_from_creation_to_merging(device, layer_launches, switch, kind, lora_dropout):
    switch("PEFT_DORA_FUSED", "0")
    layer_launches()
    with dorajit.patch_peft(strict=True):
        model, x = model_and_input(kind, device, lora_dropout=lora_dropout)
        found = results(model, x)
        with torch.no_grad():
            model.merge_adapter()
    assert layer_launches() == {}
    assert_same(found, results(model_and_input(kind, device, lora_dropout=lora_dropout)[0], x), 1e-5)
    assert layer_launches() == {}


@pytest.mark.parametrize("variable", ["PEFT_DORA_FUSED", "PEFT_DORA_FUSED_BACKWARD"])
@pytest.mark.parametrize("text", ["2", "no", "off", "yes"])
def test_invalid_value_warns_and_counts_as_unset(device, layer_launches, switch, variable, text):
    model, x = model_and_input("linear", device)
    with pytest.warns(RuntimeWarning, match=f"{variable} is '{text}'"):
        switch(variable, text)
    with dorajit.patch_peft(strict=True):
        assert ran(model, x, layer_launches) == (TRAINING, INFERENCE)


def test_variables_are_read_once_until_invalidated(device, layer_launches, monkeypatch):
    model, x = model_and_input("linear", device)
    with dorajit.patch_peft(strict=True):
        assert ran(model, x, layer_launches) == (TRAINING, INFERENCE)
        monkeypatch.setenv("PEFT_DORA_FUSED", "0")
        assert ran(model, x, layer_launches) == (TRAINING, INFERENCE)
        dorajit.invalidate_environment()
        assert ran(model, x, layer_launches) == ({}, {})
        monkeypatch.delenv("PEFT_DORA_FUSED")
        assert ran(model, x, layer_launches) == ({}, {})
        dorajit.invalidate_environment()
        assert ran(model, x, layer_launches) == (TRAINING, INFERENCE)


def test_switching_off_between_forward_and_backward_gives_right_gradients(device, layer_launches):
    """A graph that was built with kernels has right gradients after kernels are switched off."""
    model, x = model_and_input("linear", device)
    with dorajit.patch_peft(strict=True):
        expected = results(model, x)[1]
        model.zero_grad()
        torch.manual_seed(11)
        out = model(x)
        layer_launches()
        with dorajit.disabled():
            torch.manual_seed(11)
            out.backward(torch.randn_like(out))
        assert layer_launches() == {}
    found = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_setting_a_threshold_writes_the_environment():
    """Child processes inherit them."""
    dorajit.set_dora_norm_threshold_mb(48)
    dorajit.set_dora_forward_threshold_mb(96)
    assert os.environ["PEFT_DORA_NORM_CHUNK_MB"] == "48"
    assert os.environ["PEFT_DORA_FWD_CHUNK_MB"] == "96"
    with pytest.raises(ValueError, match="from 16 to 65536"):
        dorajit.set_dora_norm_threshold_mb(15)
    assert os.environ["PEFT_DORA_NORM_CHUNK_MB"] == "48"
    told = processes.run("print(dorajit.get_dora_norm_threshold_mb(), dorajit.get_dora_forward_threshold_bytes())")
    assert told == f"48 {96 << 20}"


def test_variable_set_before_start_switches_kernels_off():
    program = """
layer = dorajit.nn.DoRALinear(torch.nn.Linear(8, 8), 2)
layer(torch.ones(2, 8)).sum().backward()
print(sum(testing.launch_counts().values()))
"""
    for value, launched in (("0", "0"), ("1", "4")):
        assert processes.run(program, PEFT_DORA_FUSED=value) == launched


# --- budgets -------------------------------------------------------------------------------------

BUDGETS = [("norm", "PEFT_DORA_NORM_CHUNK_MB"), ("forward", "PEFT_DORA_FWD_CHUNK_MB")]

def functions(kind):
    return (getattr(dorajit, f"set_dora_{kind}_threshold_mb"),
            getattr(dorajit, f"get_dora_{kind}_threshold_mb"),
            getattr(dorajit, f"get_dora_{kind}_threshold_bytes"))


@pytest.mark.parametrize("kind, variable", BUDGETS)
def test_thresholds_are_set_read_and_checked(kind, variable, switch, monkeypatch):
    set_mb, get_mb, get_bytes = functions(kind)
    assert get_mb() == 256 and get_bytes() == 256 << 20
    monkeypatch.setenv(variable, "64")
    assert get_mb() == 256  # the variable is read only once
    switch(variable, "64")
    assert get_mb() == 64
    for mb in (16, 65536):
        set_mb(mb)
        assert get_mb() == mb
    for mb in (15, 65537, -1, 2.5, "64", None, True):
        with pytest.raises(ValueError, match="from 16 to 65536"):
            set_mb(mb)
    assert get_mb() == 65536


@pytest.mark.parametrize("kind, variable", BUDGETS)
@pytest.mark.parametrize("text", ["12", "many", "70000"])
def test_threshold_variable_with_invalid_value_warns(kind, variable, text, switch):
    switch(variable, text)
    with pytest.warns(RuntimeWarning, match=variable):
        assert functions(kind)[1]() == 256
