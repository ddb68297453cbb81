"""Environment variables and a patched PEFT model: which kernels run, and when variables are read."""

import os

import dorajit
import processes
import pytest
import torch

from peft_models import KINDS, assert_same, model_and_input, results

TRAINING = {"norm": 1, "compose_residual": 1, "residual_backward": 1}
INFERENCE = {"norm": 1, "compose_residual": 1}
NORM = {"norm": 1}

pytestmark = pytest.mark.usefixtures("without_switches")


def ran(model, x, layer_launches):
    """(launches of a training step, launches of inference)."""
    layer_launches()
    results(model, x)
    training = layer_launches()
    with torch.no_grad():
        model(x)
    return training, layer_launches()


@pytest.mark.parametrize("variable, text, training, inference", [
    ("PEFT_DORA_FUSED", "0", {}, {}), ("PEFT_DORA_FUSED", "false", {}, {}),
    ("PEFT_DORA_FUSED", "FALSE", {}, {}), ("PEFT_DORA_FUSED", " False ", {}, {}),
    ("PEFT_DORA_FUSED", "1", TRAINING, INFERENCE), ("PEFT_DORA_FUSED", "True", TRAINING, INFERENCE),
    ("PEFT_DORA_FUSED", "", TRAINING, INFERENCE),
    ("PEFT_DORA_FUSED_BACKWARD", "0", NORM, INFERENCE),
    ("PEFT_DORA_FUSED_BACKWARD", "False", NORM, INFERENCE),
    ("PEFT_DORA_FUSED_BACKWARD", "1", TRAINING, INFERENCE),
    ("PEFT_DORA_FUSED_BACKWARD", "TRUE", TRAINING, INFERENCE)])
@pytest.mark.parametrize("kind", ["linear", "conv2d", "embedding"])
def test_values_of_variables_select_the_kernels_that_run(device, layer_launches, switch, kind, variable, text,
                                                         training, inference):
    model, x = model_and_input(kind, device)
    with dorajit.patch_peft(strict=True):
        expected = results(model, x)
        switch(variable, text)
        assert ran(model, x, layer_launches) == (training, inference)
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
