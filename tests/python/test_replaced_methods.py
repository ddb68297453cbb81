"""Methods of PyTorch and PEFT that somebody else replaced or wrapped are called, and stay replaced after undo()."""

import functools

import dorajit
import processes
import pytest
import torch

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft.tuners.lora import dora, variants
from peft.tuners.lora.layer import Linear
from peft_models import model_and_input


def wrapped(method, change):
    """A wrapper that has the name, the module and the attributes of the method."""
    @functools.wraps(method)
    def wrapper(*args, **kwargs):
        return change(method(*args, **kwargs))
    return wrapper


@pytest.mark.parametrize("statement", ["", "functools.wraps(forward)(doubled)", "exec_in_module(doubled)"])
def test_linear_forward_replaced_before_import_is_called(statement):
    program = """
import functools, sys, torch
linear = torch.nn.Linear(8, 8)
forward = torch.nn.Linear.forward
def doubled(self, x):
    return (1 if self.bias is None else 2) * forward(self, x)
def exec_in_module(function):
    names = sys.modules[torch.nn.Linear.__module__].__dict__
    exec("def forward(self, x): return (1 if self.bias is None else 2) * F.linear(x, self.weight, self.bias)", names)
    return names["forward"]
if %r:
    torch.nn.Linear.forward = %s
import dorajit
layer = dorajit.nn.DoRALinear(linear, 2)
x = torch.ones(2, 8)
out = layer(x)
print("one node" if "DoraLinear" in type(out.grad_fn).__name__ else "composed", torch.equal(out, linear(x)))
""" % (statement, statement or None)
    assert processes.run(program, start="") == f"{'composed' if statement else 'one node'} True"


@pytest.mark.parametrize("owner, is_static", [(dora.DoraLinearLayer, False), (variants.DoraLinearVariant, True),
                                              (Linear, False)])
def test_wrapped_method_of_peft_is_not_replaced(device, monkeypatch, owner, is_static):
    model, x = model_and_input("linear", device)
    wrapper = wrapped(owner.forward, lambda out: 3 * out)
    monkeypatch.setattr(owner, "forward", staticmethod(wrapper) if is_static else wrapper)
    expected = model(x)
    with pytest.warns(RuntimeWarning, match=f"{owner.__name__}.forward was replaced by test_replaced_methods"):
        patch = dorajit.patch_peft()
    with patch:
        assert f"{owner.__name__}.forward" in patch.refused
        torch.testing.assert_close(model(x), expected)
    with pytest.raises(RuntimeError, match="was replaced by"):
        dorajit.patch_peft(strict=True)


def test_undo_keeps_later_replacements(device):
    model, x = model_and_input("linear", device)
    expected, original = model(x), Linear.forward
    try:
        patch = dorajit.patch_peft(strict=True)
        installed = Linear.forward
        Linear.forward = later = wrapped(installed, lambda out: out + 1000)
        patch.undo()
        assert Linear.forward is later
        assert dora.DoraLinearLayer.forward.__module__ == "peft.tuners.lora.dora"
        torch.testing.assert_close(model(x), expected + 1000)
        Linear.forward = installed  # as at the end of a context that replaced it
        torch.testing.assert_close(model(x), expected)
        with dorajit.patch_peft(strict=True):
            assert Linear.forward is installed
        assert Linear.forward is original
    finally:
        Linear.forward = original
