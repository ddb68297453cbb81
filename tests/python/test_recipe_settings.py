"""Settings of a model that a recipe may meet: types, strides, hooks, modules that are switched off, other modes."""

import dorajit
import pytest
import torch
from torch import nn

from recipes import BF16, F32, IN, OUT, adapted, as_found, assert_near, hqq, is_node, nf4, plain, step, torchao


def matches_peft(model, x, bound=1e-6, autocast=False):
    """Compares a step with that of unpatched PEFT; returns the patched output."""
    expected, _ = step(model, x, autocast)
    with dorajit.patch_peft(strict=True):
        found, out = step(model, x, autocast)
    as_found(expected, found)
    assert_near(found, expected, bound)
    return out


@pytest.mark.parametrize("how", ["eval", "zero", "forward"])
def test_dropout_that_is_switched_off_does_not_drop(device, how):
    model = adapted(plain, device, F32, True, 0.5)
    for one in model.modules():
        if isinstance(one, nn.Dropout):
            if how == "eval":
                one.eval()
            elif how == "zero":
                one.p = 0.0
            else:
                one.forward = lambda x: x
    assert is_node(matches_peft(model, torch.randn(5, IN, device=device))) == (how != "forward")


@pytest.mark.parametrize("how", ["eval", "zero"])
def test_dropout_that_is_switched_off_costs_nothing(device, layer_launches, how):
    def steps(p):
        model = dorajit.nn.DoRALinear.from_linear(nn.Linear(IN, OUT, device=device), rank=4, alpha=8, dropout=p)
        if p:
            model.lora_dropout.p, model.lora_dropout.training = (0.0, True) if how == "zero" else (p, False)
        layer_launches()
        out = model(torch.ones(3, IN, device=device))
        out.sum().backward()
        return is_node(out), layer_launches()
    assert steps(0.5) == steps(0.0)


@pytest.mark.parametrize("meaning", ["peft", "low_rank"])
@pytest.mark.parametrize("base", [nf4, hqq])
def test_generation_in_training_mode_over_a_quantized_base(device, dropout_meaning, meaning, base):
    model = adapted(base, device, F32, True, 0.2)
    x = torch.randn(3, IN, device=device)
    dropout_meaning(meaning)
    with dorajit.patch_peft(strict=True), torch.no_grad():
        torch.manual_seed(1)
        expected = model(x)
        with dorajit.frozen_weights(model):
            for _ in range(3):
                torch.manual_seed(1)
                torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("compute", [F32, BF16, torch.float16])
@pytest.mark.parametrize("x_dtype", [F32, BF16])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("autocast", [True, False])
def test_compute_type_of_bitsandbytes_gives_the_types_of_peft(device, compute, x_dtype, dropout, autocast):
    matches_peft(adapted(nf4, device, compute, True, dropout), torch.randn(6, IN, device=device).to(x_dtype), 2e-2,
                 autocast)


def test_small_gradients_over_a_float16_compute_type_do_not_vanish(device):
    model = adapted(nf4, device, torch.float16, True)
    x = torch.randn(6, IN, device=device, requires_grad=True)
    with dorajit.patch_peft(strict=True):
        (model(x) * 1e-9).sum().backward()
    assert all(one.grad.any() for name, one in model.named_parameters() if "lora_" in name) and x.grad.any()


# HQQ multiplies only tensors of one type.
@pytest.mark.parametrize("base, of_bias, x_dtype", [(hqq, F32, BF16), (torchao, F32, BF16), (torchao, BF16, F32)])
def test_bias_and_input_of_other_types_than_the_quantized_weight(device, base, of_bias, x_dtype):
    model = adapted(base, device, BF16, True)
    layer = model.base_model.model[0].base_layer
    bias = nn.Parameter(layer.bias.detach().to(of_bias), requires_grad=False)
    if "bias" in layer._parameters:
        layer.bias = bias
    else:
        layer.bias = bias.detach()
    matches_peft(model, torch.randn(6, IN, device=device).to(x_dtype), 2e-2)


@pytest.mark.parametrize("base", [plain, nf4])
@pytest.mark.parametrize("meaning", ["peft", "low_rank"])
def test_dropout_of_a_transposed_input(device, dropout_meaning, base, meaning):
    model = adapted(base, device, F32, True, 0.2)
    x = torch.randn(5, 3, IN, device=device)
    with dorajit.patch_peft(strict=True):
        dropout_meaning(meaning)
        given = x.transpose(0, 1).detach().requires_grad_()
        torch.manual_seed(5)
        out = model(given)
        assert is_node(out)
        found = torch.autograd.grad(out.square().sum(), given)[0]
        with dorajit.disabled():
            torch.manual_seed(5)
            expected = torch.autograd.grad(model(given).square().sum(), given)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_declined_layer_drops_its_input_once(device, dropout_meaning):
    model = adapted(plain, device, F32, True, 0.2)
    layer = model.base_model.model[0]
    layer.scaling["default"] = torch.tensor(layer.scaling["default"])  # such layers are left to PEFT
    calls = []
    layer.lora_dropout["default"].register_forward_hook(lambda *_: calls.append(1))
    with dorajit.patch_peft():
        dropout_meaning("low_rank")
        model(torch.randn(5, IN, device=device))
    assert len(calls) == 1


@pytest.mark.parametrize("base", [plain, nf4])
def test_batched_gradients_with_dropout(device, base):
    model = adapted(base, device, F32, True, 0.2)
    x = torch.randn(4, IN, device=device, requires_grad=True)
    seeds = torch.randn(3, 4, OUT, device=device)
    with dorajit.patch_peft(strict=True):
        out = model(x)
        found = torch.autograd.grad(out, x, seeds, is_grads_batched=True, retain_graph=True)[0]
        for one, seed in zip(found, seeds):
            torch.testing.assert_close(one, torch.autograd.grad(out, x, seed, retain_graph=True)[0], rtol=1e-4,
                                       atol=1e-4)


def test_quantized_weight_that_its_module_replaces_before_the_backward_pass(device):
    """As bitsandbytes does for inference on some CPUs."""
    model = adapted(nf4, device)
    x = torch.randn(6, IN, device=device, requires_grad=True)
    with dorajit.patch_peft(strict=True):
        expected = torch.autograd.grad(model(x).sum(), x)[0]
        out = model(x)
        weight = model.base_model.model[0].base_layer.weight
        weight.data = torch.zeros_like(weight.data)
        assert torch.equal(torch.autograd.grad(out.sum(), x)[0], expected)
