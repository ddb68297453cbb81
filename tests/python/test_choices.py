"""The choices between computations with different results: their setters, variables and arguments of patch_peft, and the
element type of low-rank products. What dropout drops is tested with the recipes."""

import os

import dorajit
import peft_models
import pytest
import torch
from dorajit import control
from recipes import BASES, BF16, F32, IN, OUT, RANK, adapted, assert_near, hqq, is_node, nf4, plain, step
from reference import perturb
from torch import nn

HALVES = [BF16, torch.float16]


def as_under_autocast(run, bound=0):
    """Compares a step with the chosen type, without autocast, with the step of the default under autocast."""
    with dorajit.patch_peft(strict=True):
        expected = run(True)
    with dorajit.patch_peft(strict=True, low_rank_dtype="base"):
        found = run(False)
    assert_near(found[0], expected[0], bound)
    return found[1]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("dropout, meaning", [(0.0, "peft"), (0.2, "peft"), (0.2, "low_rank")])
@pytest.mark.parametrize("reentrant", [None, True, False])
def test_products_in_the_type_of_the_base_are_those_of_autocast(device, dropout_meaning, base, dropout, meaning,
                                                                reentrant):
    if device == "cuda" and base in (nf4, hqq) and dropout and meaning == "peft":
        pytest.skip("PEFT casts x for these only without autocast, and on a GPU the mask depends on the type")
    model = adapted(base, device, BF16, True, dropout)
    dropout_meaning(meaning)
    x = torch.randn(2, 16, IN, device=device).to(BF16)
    out = as_under_autocast(lambda autocast: step(model, x, autocast, reentrant))
    assert out.dtype is BF16 and (is_node(out) or reentrant)
    assert all(one.grad is None and one.dtype is F32 for one in model.parameters() if one.requires_grad)


@pytest.mark.parametrize("of", ["hook", "trained weight", "nn", "nn with hook"])
@pytest.mark.parametrize("dropout, meaning", [(0.0, "peft"), (0.2, "peft"), (0.2, "low_rank")])
def test_composed_layers_have_the_same_type(device, dropout_meaning, of, dropout, meaning):
    model = adapted(plain, device, BF16, True, dropout)
    dropout_meaning(meaning)
    if "nn" in of:
        theirs = model.base_model.model[0]
        model = dorajit.nn.DoRALinear(theirs.base_layer, RANK, dropout=dropout, dtype=F32)
        model.load_state_dict(theirs.state_dict())
    layer = model if "nn" in of else model.base_model.model[0]
    if "hook" in of:
        next(one for name, one in layer.named_modules() if "lora_A" in name and isinstance(one, nn.Linear)
             ).register_forward_hook(lambda *_: None)
    if of == "trained weight":
        layer.base_layer.weight.requires_grad_()
    x = torch.randn(2, 16, IN, device=device).to(BF16)
    out = as_under_autocast(lambda autocast: step(model, x, autocast))
    assert out.dtype is BF16 and is_node(out) == (of == "nn")


@pytest.mark.parametrize("kind", ["conv1d_gpt2", "conv2d", "embedding"])
def test_other_layers_have_the_same_type(device, kind):
    model = perturb(peft_models.adapted(kind, device, BF16))
    x = model.base_model.model.example(device, BF16)

    def run(autocast):
        with torch.autocast(device, dtype=BF16, enabled=autocast):
            out = model(x)
        out.float().square().sum().backward()
        found = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
        model.zero_grad()
        return {"out": out.detach(), **found}, out
    bound = 0 if device == "cpu" else 1e-3  # cuDNN's gradients have no fixed order of sums
    assert as_under_autocast(run, bound).dtype is BF16


def test_function_and_compiled_layer_have_the_same_type(device, fresh_compiler):
    layer = dorajit.nn.DoRALinear(nn.Linear(IN, OUT, device=device, dtype=BF16), RANK, dtype=F32)
    nn.init.normal_(layer.lora_B.weight)
    x = torch.randn(6, IN, device=device).to(BF16)
    with dorajit.patch_peft(low_rank_dtype="base"):
        expected = layer(x)
        of_layer = layer.lora_A.weight, layer.lora_B.weight, layer.lora_magnitude_vector, layer.scaling
        base = layer.base_layer
        assert torch.equal(dorajit.dora_linear(x, base.weight, *of_layer, base.bias), expected)
        assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), expected)
        with dorajit.disabled():
            near = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
        torch.testing.assert_close(near, expected, rtol=2e-2, atol=2e-2)
    assert not torch.equal(layer(x), expected)  # the default's products have float32


@pytest.mark.parametrize("dtype", HALVES)
def test_saved_low_rank_result_has_the_chosen_type(device, dtype):
    """The default's products are PEFT's, in float32."""
    model = adapted(plain, device, dtype, True)
    sizes = {}
    for which in control.CHOICES["low_rank_dtype"]:
        saved = []
        with dorajit.patch_peft(strict=True, low_rank_dtype=which), torch.autograd.graph.saved_tensors_hooks(
                lambda one, saved=saved: saved.append(one) or one, lambda one: one):
            model(torch.randn(6, IN, device=device).to(dtype))
        sizes[which], = (one.dtype for one in saved if one.shape == (6, RANK))
    assert sizes == {"adapter": F32, "base": dtype}


@pytest.mark.parametrize("of_base, of_factors", [(F32, F32), (BF16, torch.float64)])
def test_other_types_than_float32_over_16_bits_are_unchanged(device, of_base, of_factors):
    torch.manual_seed(0)
    layer = dorajit.nn.DoRALinear(nn.Linear(IN, OUT, device=device, dtype=of_base), RANK, dtype=of_factors)
    nn.init.normal_(layer.lora_B.weight)
    x = torch.randn(6, IN, device=device).to(of_base)
    expected = layer(x)
    with dorajit.patch_peft(low_rank_dtype="base"):
        assert torch.equal(layer(x), expected)


# --- how a choice is made ------------------------------------------------------------------------

@pytest.mark.parametrize("name", control.CHOICES)
@pytest.mark.parametrize("value", ["both", None])
def test_unknown_choice_raises_and_changes_nothing(name, value):
    values = ", ".join(map(repr, control.CHOICES[name]))
    with pytest.raises(ValueError, match=f"is {value!r}; give one of {values}"):
        getattr(dorajit, f"set_{name}")(value)
    with pytest.raises(ValueError, match=f"patch_peft: argument `{name}` is 'both'; give one of {values}"):
        dorajit.patch_peft(**{name: "both"})
    assert getattr(control.state, name) == control.CHOICES[name][0]


@pytest.mark.parametrize("name", control.CHOICES)
def test_environment_makes_a_choice(switch, monkeypatch, name):
    default, other = control.CHOICES[name]
    variable = f"DORAJIT_{name.upper()}"
    switch(variable, other)
    assert getattr(control.state, name) == other
    with pytest.warns(RuntimeWarning, match=f"{variable} is 'both'"):
        switch(variable, "both")
    assert getattr(control.state, name) == default
    monkeypatch.delenv(variable)
    dorajit.invalidate_environment()


@pytest.mark.parametrize("name", control.CHOICES)
def test_argument_of_patch_peft_chooses_until_it_is_undone(name):
    default, other = control.CHOICES[name]
    outer = dorajit.patch_peft(**{name: other})
    with dorajit.patch_peft(**{name: default}), dorajit.patch_peft():
        assert getattr(control.state, name) == default
        outer.undo()
        assert getattr(control.state, name) == default
    assert getattr(control.state, name) == default
    with dorajit.patch_peft(**{name: other}):
        getattr(dorajit, f"set_{name}")(default)
        assert getattr(control.state, name) == other
    assert getattr(control.state, name) == default


def test_choice_of_patch_peft_survives_a_fork_from_another_thread():
    import threading
    patches = []
    thread = threading.Thread(target=lambda: patches.append(dorajit.patch_peft(dropout="low_rank")))
    thread.start()
    thread.join()
    with patches[0]:
        child = os.fork()
        if child == 0:
            os._exit(control.state.dropout != "low_rank")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
