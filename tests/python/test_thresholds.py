"""Memory budgets and switches in the environment."""

import dorajit
import pytest
import torch
from dorajit.layers import tiers

NAMES = [("norm", "PEFT_DORA_NORM_CHUNK_MB"), ("forward", "PEFT_DORA_FWD_CHUNK_MB")]

pytestmark = pytest.mark.usefixtures("without_switches")


def functions(kind):
    return (getattr(dorajit, f"set_dora_{kind}_threshold_mb"),
            getattr(dorajit, f"get_dora_{kind}_threshold_mb"),
            getattr(dorajit, f"get_dora_{kind}_threshold_bytes"))


@pytest.mark.parametrize("kind, variable", NAMES)
def test_thresholds_are_set_read_and_checked(kind, variable, monkeypatch):
    set_mb, get_mb, get_bytes = functions(kind)
    assert get_mb() == 256 and get_bytes() == 256 << 20
    monkeypatch.setenv(variable, "64")
    assert get_mb() == 256  # the variable is read only once
    dorajit.invalidate_environment()
    assert get_mb() == 64
    for mb in (16, 65536):
        set_mb(mb)
        assert get_mb() == mb
    for mb in (15, 65537, -1, 2.5, "64", None, True):
        with pytest.raises(ValueError, match="from 16 to 65536"):
            set_mb(mb)
    assert get_mb() == 65536


@pytest.mark.parametrize("kind, variable", NAMES)
@pytest.mark.parametrize("text", ["12", "many", "70000"])
def test_threshold_variable_with_invalid_value_warns(kind, variable, text, monkeypatch):
    monkeypatch.setenv(variable, text)
    dorajit.invalidate_environment()
    with pytest.warns(RuntimeWarning, match=variable):
        assert functions(kind)[1]() == 256


def way(**switches):
    lora = torch.zeros(2, 4, requires_grad=switches.pop("training"))
    return tiers.tier(lora, torch.zeros(2, 4), torch.ones(4))


@pytest.mark.parametrize("variable, text, training, inference", [
    (None, None, tiers.TRAINING, tiers.INFERENCE), ("PEFT_DORA_FUSED", "0", tiers.EAGER, tiers.EAGER),
    ("PEFT_DORA_FUSED", "False", tiers.EAGER, tiers.EAGER),
    ("PEFT_DORA_FUSED", "TRUE", tiers.TRAINING, tiers.INFERENCE),
    ("PEFT_DORA_FUSED_BACKWARD", "0", tiers.EAGER, tiers.INFERENCE),
    ("PEFT_DORA_FUSED_BACKWARD", "1", tiers.TRAINING, tiers.INFERENCE)])
def test_variables_select_the_tier(monkeypatch, variable, text, training, inference):
    if variable:
        monkeypatch.setenv(variable, text)
        dorajit.invalidate_environment()
    assert way(training=True) == training and way(training=False) == inference
    with torch.no_grad():
        assert way(training=True) == inference


def test_kernels_off_launches_nothing(device, launches, monkeypatch):
    layer = dorajit.nn.DoRALinear(torch.nn.Linear(16, 8, device=device), 2)
    x = torch.randn(3, 16, device=device)
    launches()
    layer(x).sum().backward()
    assert launches() == {"weight_norm": 1, "compose_residual": 1, "magnitude_backward": 1}
    monkeypatch.setenv("PEFT_DORA_FUSED", "0")
    dorajit.invalidate_environment()
    layer(x).sum().backward()
    with torch.no_grad():
        layer(x)
    assert launches() == {}
