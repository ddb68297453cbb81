"""patch_peft: methods and calls that are left to PEFT, and refused arguments; methods that somebody else replaced or
wrapped are called, and stay replaced after undo()."""

import functools
import warnings

import dorajit
import processes
import pytest
import torch
from torch import nn

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft.tuners.lora import dora, variants
from peft.tuners.lora.layer import Linear
from peft_models import assert_same, model_and_input, results


def test_unsupported_version_of_peft_is_not_patched(monkeypatch, device, layer_launches):
    for version, words in (("0.17.1", "0.18 is the oldest"), ("odd", "not supported")):
        monkeypatch.setattr(peft, "__version__", version)
        with pytest.warns(RuntimeWarning, match=words):
            patch = dorajit.patch_peft()
        assert patch.replaced == ()
        patch.undo()
        with pytest.raises(RuntimeError, match="0.18 to"):
            dorajit.patch_peft(strict=True)
    monkeypatch.setattr(peft, "__version__", "9.9.9")  # a newer version is recognized by its signatures
    dorajit.patch_peft(strict=True).undo()


def test_method_with_unknown_signature_is_not_replaced(monkeypatch, device, layer_launches):
    original = dora.DoraLinearLayer.forward
    def forward(self, x, *, lora_A, lora_B, scaling, base_layer, base_result=None,
                adapter_name="default", novelty=None):
        return original(self, x, lora_A=lora_A, lora_B=lora_B, scaling=scaling,
                        base_layer=base_layer, base_result=base_result)
    monkeypatch.setattr(dora.DoraLinearLayer, "forward", forward)
    model, x = model_and_input("linear", device)
    expected = model(x)
    with pytest.warns(RuntimeWarning, match="novelty"):
        patch = dorajit.patch_peft()
    assert set(patch.refused) == {"DoraLinearLayer.forward"}
    layer_launches()
    assert torch.equal(model(x), expected) and layer_launches() == {}
    patch.undo()


METHODS = ("Linear.forward", "Embedding.forward", "_ConvNd.forward", "DoraLinearLayer.forward",
           "_DoraConvNdLayer.forward", "DoraLinearVariant.forward", "_DoraConvNdVariant.forward",
           "DoraEmbeddingVariant.forward", "DoraLinearLayer.update_layer", "DoraLinearLayer.get_weight_norm",
           "_DoraConvNdLayer.get_weight_norm", "BaseTuner._cast_adapter_dtype",
           *(f"{variant}.{name}" for variant in ("DoraLinearVariant", "DoraEmbeddingVariant", "_DoraConvNdVariant")
             for name in ("merge_safe", "merge_unsafe", "unmerge")))
OF_QUANTIZED = {"Linear4bit.forward", "HqqLoraLinear.forward"}  # where PEFT has loaded their modules


def owner_of(label):
    from peft.tuners.lora import layer
    from peft.tuners.tuners_utils import BaseTuner
    name = label.split(".")[0]
    return BaseTuner if name == "BaseTuner" else next(
        getattr(one, name) for one in (dora, variants, layer) if hasattr(one, name))


@pytest.mark.parametrize("label", METHODS)
def test_each_unknown_method_is_left_to_peft_separately(monkeypatch, device, label):
    """All other methods are replaced, and the results match."""
    owner, name = owner_of(label), label.split(".")[1]
    original = vars(owner)[name]
    static = isinstance(original, staticmethod)
    call = original.__func__ if static else original
    def changed(*args, novelty=None, **kwargs):
        return call(*args, **kwargs)
    kind = "embedding" if "Embedding" in label else "conv2d" if "Conv" in label else "linear"
    def numbers():
        model, x = model_and_input(kind, device)
        found = results(model, x)
        model.merge_adapter()
        merged = model(x).detach()
        model.unmerge_adapter()
        return found, (merged, model(x).detach())
    expected = numbers()
    monkeypatch.setattr(owner, name, staticmethod(changed) if static else changed)
    with pytest.warns(RuntimeWarning, match="novelty"):
        patch = dorajit.patch_peft()
    with patch:
        assert set(patch.refused) == {label}
        assert set(patch.replaced) - OF_QUANTIZED == set(METHODS) - {label}
        found = numbers()
    assert_same(found[0], expected[0], 1e-5)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-4)
    assert getattr(owner, name) is changed


def test_factor_of_unknown_class_is_left_to_peft(device, layer_launches):
    Strange = type(f"Strange_{device}", (nn.Linear,), {})  # a new name for each device, as a reason warns only once
    model, x = model_and_input("linear", device)
    layer = model.base_model.model.layer
    expected = model(x)
    layer.lora_A["default"].__class__ = Strange
    with dorajit.patch_peft() as patch:
        layer_launches()
        with pytest.warns(RuntimeWarning, match="`lora_A` is a .*Strange"):
            assert torch.equal(model(x), expected)
        assert layer_launches() == {} and any("Strange" in reason for reason in patch.declined)


@pytest.mark.parametrize("kind", ["linear", "conv2d", "embedding"])
def test_scaling_that_is_a_tensor_is_left_to_peft(device, layer_launches, kind):
    model, x = model_and_input(kind, device)
    layer = model.base_model.model.layer
    layer.scaling["default"] = torch.tensor(2.0, device=device, requires_grad=True)
    expected, gradients = results(model, x), layer.scaling["default"].grad.clone()
    layer.scaling["default"].grad = None
    with dorajit.patch_peft(model) as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reason warns only once
        layer_launches()
        found = results(model, x)
        assert layer_launches() == {} and "the scaling is a Tensor" in patch.declined
    assert_same(found, expected, 1e-6)
    assert torch.equal(layer.scaling["default"].grad, gradients)


def test_hooks_on_the_dora_layer_receive_its_output(device):
    model, x = model_and_input("linear", device)
    base = model.base_model.model.layer.base_layer(x)
    with dorajit.patch_peft(strict=True):
        with torch.nn.modules.module.register_module_forward_hook(
                lambda module, _, out: out * 0 if isinstance(module, dora.DoraLinearLayer) else None):
            assert torch.equal(model(x), base)
        layer = model.base_model.model.layer.lora_magnitude_vector["default"]
        with layer.register_forward_hook(lambda _, __, out: out * 0):
            assert torch.equal(model(x), base)
        ours = dora.DoraLinearLayer.forward
        @functools.wraps(ours)
        def wrapped(*args, **kwargs):
            return ours(*args, **kwargs) * 0
        dora.DoraLinearLayer.forward = wrapped
        try:
            assert torch.equal(model(x), base)
        finally:
            dora.DoraLinearLayer.forward = ours
        assert not torch.equal(model(x), base)


def test_replaced_methods_accept_keyword_arguments(device):
    model, x = model_and_input("linear", device)
    layer = model.base_model.model.layer
    expected = model(x)
    with dorajit.patch_peft(strict=True):
        found = variants.DoraLinearVariant.forward(module=layer, active_adapter="default", x=x,
                                          result=layer.base_layer(x))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


class Quantized(nn.Linear):
    """A base layer that PEFT dequantizes like that of HQQ."""

    W_q = True

    def dequantize(self):
        return self.weight.detach().mul(64).round().div(64)


def test_quantized_base_is_dequantized_by_peft(device, layer_launches):
    model, x = model_and_input("linear", device, lora_dropout=0.5)
    model.base_model.model.layer.base_layer.__class__ = Quantized
    expected = results(model, x)
    with dorajit.patch_peft(strict=True):
        layer_launches()
        assert_same(results(model, x), expected, 1e-5)
        assert layer_launches()["norm"] == 1


@pytest.mark.parametrize("model", [3, "model", torch.nn.Linear])
def test_patch_of_non_module_raises(model):
    with pytest.raises(TypeError, match="`model` is a"):
        dorajit.patch_peft(model)


# --- methods that somebody else replaced or wrapped ----------------------------------------------

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
    with pytest.warns(RuntimeWarning, match=f"{owner.__name__}.forward was replaced by test_peft_gates"):
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
