"""The recipes that people train with run as one node and match PEFT: dropout of both meanings, quantized bases, float32
adapters with and without autocast, a bias, checkpoints of both kinds; and settings that a recipe may meet: types,
strides, hooks, modules that are switched off, other modes."""

import copy
import weakref

import dorajit
import pytest
import torch
import torch.nn.functional as F
from dorajit.layers import dequantization
from peft_models import assert_same, results
from recipes import (BASES, BF16, F32, IN, OUT, RANK, SETTINGS, adapted, as_found, assert_near, hqq, int8, is_node,
                     nf4, plain, step, torchao)
from reference import perturb
from torch import nn


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("dtype, float32, autocast", SETTINGS)
@pytest.mark.parametrize("dropout, bias", [(0.0, True), (0.1, True), (0.1, False)])
def test_recipe_runs_as_one_node_and_matches_peft(device, base, dtype, float32, autocast, dropout, bias):
    model = adapted(base, device, dtype, float32, dropout, bias)
    x = torch.randn(2, 16, IN, device=device).to(dtype)
    expected, _ = step(model, x, autocast)
    with dorajit.patch_peft(strict=True) as patch:
        declined = patch.declined
        found, out = step(model, x, autocast)
        assert is_node(out) and patch.declined == declined
        for reentrant in (False, True):
            assert_near(step(model, x, autocast, reentrant)[0], found, 0)
    as_found(expected, found)
    assert_near(found, expected, 1e-6 if dtype is F32 else 1.2e-2)


def formula(x, weight, of, gain, dropped, drops_base):
    """The layer in float64, by the definition of either meaning of dropout."""
    a, b, bias = of
    low = F.linear(F.linear(dropped, a), b)
    result = F.linear(x, weight)
    if drops_base:
        return result + (gain - 1) * F.linear(dropped, weight) + gain * low + bias
    return gain * (result + low) + bias


@pytest.mark.parametrize("meaning", ["peft", "low_rank"])
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("bias_trained", [False, True])
def test_gradients_with_dropout_match_float64(device, dropout_meaning, meaning, base, bias_trained):
    model = adapted(base, device, F32, True, 0.2)
    layer = model.base_model.model[0]
    bias = layer.base_layer.bias
    if isinstance(bias, nn.Parameter) or bias.is_leaf:
        bias.requires_grad_(bias_trained)
    x = torch.randn(3, 5, IN, device=device)
    with dorajit.patch_peft(strict=True):
        dropout_meaning(meaning)
        found, out = step(model, x)
        assert is_node(out)
    torch.manual_seed(5)
    mask = F.dropout(torch.ones_like(x), 0.2)
    from peft.utils.integrations import dequantize_module_weight
    weight = dequantize_module_weight(layer.base_layer).detach().double()
    a, b, magnitude = (one.detach().double().requires_grad_() for one in (
        layer.lora_A["default"].weight, layer.lora_B["default"].weight, layer.lora_magnitude_vector["default"].weight))
    scale = layer.scaling["default"]
    wide, wide_bias = x.double().requires_grad_(), bias.detach().double().requires_grad_()
    gain = magnitude / (weight + scale * b @ a).detach().norm(dim=1)
    exact = formula(wide, weight, (a, scale * b, wide_bias), gain, wide * mask.double(), meaning == "peft")
    (exact * torch.linspace(-1, 1, exact.numel(), device=device).view(exact.shape)).sum().backward()
    pairs = [(found["out"], exact), (found["x"], wide.grad)]
    for name, one in found.items():
        for part, other in (("lora_A", a), ("lora_B", b), ("magnitude", magnitude), ("bias", wide_bias)):
            if part in name:
                pairs.append((one, other.grad))
    assert len(pairs) == 5 + (bias_trained and isinstance(bias, nn.Parameter))
    for one, other in pairs:
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5 * other.abs().max().item())


def test_low_rank_dropout_has_the_expectation_of_peft(device, dropout_meaning):
    """The mean of many masks of either meaning is the output without dropout."""
    model = adapted(plain, device, F32, True, 0.3)
    x = torch.randn(8, IN, device=device)
    exact = model.eval()(x).detach()
    model.train()
    with dorajit.patch_peft(strict=True), torch.no_grad():
        spread = {}
        for meaning in ("peft", "low_rank"):
            dropout_meaning(meaning)
            outputs = torch.stack([model(x) for _ in range(400)])
            spread[meaning] = outputs.std(0).mean().item()
            error = (outputs.mean(0) - exact).abs().max() / outputs.std(0).max()
            assert error < 5 / 400 ** 0.5
    assert spread["low_rank"] < spread["peft"]


@pytest.mark.parametrize("meaning", ["peft", "low_rank"])
@pytest.mark.parametrize("reason", ["hook", "global hook", "disabled"])
def test_composed_calls_have_the_same_masks_and_meaning(device, dropout_meaning, meaning, reason):
    model = adapted(plain, device, F32, True, 0.2)
    x = torch.randn(5, IN, device=device)
    factor = model.base_model.model[0].lora_A["default"]
    contexts = {"hook": lambda: factor.register_forward_hook(lambda *_: None), "disabled": dorajit.disabled,
                "global hook": lambda: nn.modules.module.register_module_forward_hook(lambda *_: None)}
    with dorajit.patch_peft(strict=True):
        dropout_meaning(meaning)
        expected, out = step(model, x)
        assert is_node(out)
        with contexts[reason]():
            found, out = step(model, x)
            assert not is_node(out)
    assert_near(found, expected, 1e-6)


@pytest.mark.parametrize("meaning", ["peft", "low_rank"])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_of_nn_with_dropout_matches_peft(device, dropout_meaning, meaning, bias):
    model = adapted(plain, device, F32, True, 0.2, bias)
    theirs = model.base_model.model[0]
    ours = dorajit.nn.DoRALinear(copy.deepcopy(theirs.base_layer), RANK, theirs.scaling["default"] * RANK, dropout=0.2)
    ours.load_state_dict({name: one for name, one in theirs.state_dict().items()})
    x = torch.randn(3, 5, IN, device=device)
    with dorajit.patch_peft(strict=True):
        dropout_meaning(meaning)
        expected, _ = step(theirs, x)
        found, out = step(ours, x)
    assert is_node(out)
    assert len(found) == len(expected)
    for name, one in found.items():
        other, = (given for theirs_name, given in expected.items()
                  if theirs_name.removeprefix("base_layer.").startswith(name.removesuffix(".weight")))
        assert torch.equal(one.flatten(), other.flatten()), name


@pytest.mark.parametrize("meaning", ["peft", "low_rank"])
@pytest.mark.parametrize("base", [plain, nf4])
@pytest.mark.parametrize("frozen", [(), ("x", "lora_A")])
def test_second_order_gradients_match_a_composed_layer(device, dropout_meaning, meaning, base, frozen):
    model = adapted(base, device, F32, True, 0.2)
    x = torch.randn(4, IN, device=device, requires_grad="x" not in frozen)
    for name, one in model.named_parameters():
        one.requires_grad_("lora_" in name and not any(part in name for part in frozen))
    trained = [one for one in (x, *model.parameters()) if one.requires_grad]
    dropout_meaning(meaning)

    def second():
        torch.manual_seed(3)
        first = torch.autograd.grad(model(x).square().sum(), trained, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), trained)

    with dorajit.patch_peft(strict=True):
        found = second()
        with dorajit.disabled():
            expected = second()
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * other.abs().max().item())


@pytest.mark.parametrize("dropout, meaning", [(0.0, "peft"), (0.2, "peft"), (0.2, "low_rank")])
def test_node_saves_x_and_one_byte_an_element_of_the_mask(device, dropout_meaning, dropout, meaning):
    model = adapted(plain, device, BF16, False, dropout)
    x = torch.randn(6, IN, device=device).to(BF16).requires_grad_()
    saved = []
    with dorajit.patch_peft(strict=True):
        dropout_meaning(meaning)
        with torch.autograd.graph.saved_tensors_hooks(lambda one: saved.append(one) or one, lambda one: one):
            model(x)
    of_x = [one for one in saved if one.shape == x.shape]
    assert sorted(one.element_size() for one in of_x) == ([1, 2] if dropout else [2])
    assert any(one.data_ptr() == x.data_ptr() for one in of_x)
    assert [one.shape for one in saved].count((6, OUT)) == 1  # inner


def test_quantized_weight_is_dequantized_once_a_pass_and_not_kept(device, monkeypatch):
    bitsandbytes = pytest.importorskip("bitsandbytes", exc_type=ImportError)
    model = adapted(nf4, device)
    made = []
    def watch(owner, name):
        original = getattr(owner, name)
        def dequantize(*given, **named):
            dense = original(*given, **named)
            if dense is not None:
                made.append(weakref.ref(dense))
            return dense
        monkeypatch.setattr(owner, name, dequantize)
    watch(dequantization, "weight_of")
    watch(bitsandbytes.functional, "dequantize_4bit")
    x = torch.randn(6, IN, device=device, requires_grad=True)
    with dorajit.patch_peft(strict=True):
        out = model(x)
        assert [one() for one in made] == [None]
        out.sum().backward()
        assert [one() for one in made] == [None, None]
        made.clear()
        model.eval()
        with torch.no_grad(), dorajit.frozen_weights(model):
            first = model(x)
            again = model(x)  # on a GPU by the base layer's own product, with the kept gain
        assert [one() for one in made] == [None] * (1 if device == "cuda" else 2)
    torch.testing.assert_close(again, first, rtol=1e-5, atol=1e-5)


# --- quantized bases in float32 -----------------------------------------------------------------

@pytest.mark.parametrize("base", [nf4, int8, hqq, torchao])
@pytest.mark.parametrize("made_patched", [True, False])
def test_patched_quantized_layer_matches_peft(device, layer_launches, base, made_patched):
    x = torch.randn(3, IN, device=device)
    expected = results(perturb(adapted(base, device, new=True)), x)
    model = None if made_patched else perturb(adapted(base, device, new=True))
    with dorajit.patch_peft(strict=True):
        model = model or perturb(adapted(base, device, new=True))
        layer_launches()
        found = results(model, x)  # once, because PEFT's DoRA over 8 bits fails in a second pass on a CPU
    assert layer_launches() == {"norm": 1, "compose_residual": 1, "residual_backward": 1}
    assert_same(found, expected, 1e-5)


@pytest.mark.parametrize("base", [nf4, hqq, torchao])
def test_new_adapter_over_a_quantized_base_does_not_change_outputs(device, launches, base):
    with dorajit.patch_peft(strict=True), torch.no_grad():
        model = adapted(base, device, new=True)
        x = torch.randn(3, IN, device=device)
        launches()
        found = model(x)
        assert launches()["compose_residual"] == 1
        with model.disable_adapter():
            # The node multiplies by the dequantized weight, torchao by integers and then by their scale, and
            # bitsandbytes on a GPU few rows by its own kernel.
            has_bits = base is hqq or (base is nf4 and device == "cpu")
            torch.testing.assert_close(found, model(x), rtol=0, atol=0 if has_bits else 1e-6)


@pytest.mark.parametrize("base", [nf4, hqq])
def test_merge_of_quantized_layer_matches_peft(device, base):
    """Merging quantizes again, so the result is only compared with that of an unpatched merge."""
    x = torch.randn(3, IN, device=device)
    outputs = []
    for patched in (True, False):
        # In training mode: for inference on a CPU bitsandbytes changes the layout of the weight, which its own
        # dequantization, and so a merge, then reads wrongly.
        model = perturb(adapted(base, device, new=True)).train()
        with torch.no_grad():
            before = model(x)
            patch = dorajit.patch_peft(strict=True) if patched else None
            model.merge_adapter()
            merged = model(x)
            assert not torch.equal(merged, before)
            model.unmerge_adapter()
            # A stale norm of the weight before merging would give a difference here.
            outputs += [merged, model(x)]
            if patch:
                patch.undo()
    torch.testing.assert_close(outputs[:2], outputs[2:], rtol=1e-4, atol=1e-4)


# --- settings ------------------------------------------------------------------------------------

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
