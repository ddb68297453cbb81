"""Linear layers that run as one autograd node, and the conditions under which they run as module calls."""

import functools

import dorajit
import pytest
import torch
from dorajit.operations import run
from reference import assert_same_output, perturb
from torch import nn
from torch.nn.utils import parametrizations

KINDS = ["nn", "peft"]


def layer_of(kind, device, dtype=torch.float32, adapters=None):
    """(a module with one adapter, the model that contains it, the modules of its base layer, A and B)."""
    torch.manual_seed(3)
    base = nn.Linear(20, 12, device=device, dtype=dtype)
    if kind == "nn":
        layer = perturb(dorajit.nn.DoRALinear(base, 4, 8, dtype=adapters))
        return layer, layer, (layer.base_layer, layer.lora_A, layer.lora_B)
    peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")
    model = perturb(peft.get_peft_model(nn.Sequential(base), peft.LoraConfig(
        use_dora=True, r=4, lora_alpha=8, target_modules=["0"]), autocast_adapter_dtype=adapters is not None))
    layer = model.base_model.model[0]
    return layer, model, (layer.base_layer, layer.lora_A["default"], layer.lora_B["default"])


@pytest.fixture(params=KINDS)
def made(request, device):
    """The result of layer_of(); PEFT is patched if the layer is PEFT's."""
    found = layer_of(request.param, device)
    if request.param == "nn":
        yield found
    else:
        with dorajit.patch_peft(strict=True):
            yield found


def is_one_node(out):
    return "DoraLinear" in out.grad_fn.name()


def gradients(model, x, seed):
    out = model(x)
    trained = [one for one in model.parameters() if one.requires_grad]
    return [out.detach(), *torch.autograd.grad(out, [x, *trained], seed)]


def test_plain_layer_runs_as_one_node(made, device, layer_launches):
    _, model, _ = made
    x = torch.randn(2, 3, 20, device=device, requires_grad=True)
    layer_launches()
    out = model(x)
    assert is_one_node(out)
    out.sum().backward()
    assert layer_launches() == {"norm": 1, "compose_residual": 1, "residual_backward": 1}


@pytest.mark.parametrize("loose", ["expanded", "transposed"])
def test_loose_gradient_is_copied_without_asking_the_kernel_first(made, device, layer_launches, monkeypatch, loose):
    _, model, _ = made
    x = torch.randn(3, 20, device=device, requires_grad=True)
    seed = torch.ones(3, 12, device=device)
    expected = gradients(model, x, seed)
    seed = seed[0, 0].expand(3, 12) if loose == "expanded" else seed.T.contiguous().T
    monkeypatch.setattr(run, "launch_over_views", None)
    layer_launches()
    found = gradients(model, x, seed)
    assert layer_launches()["residual_backward"] == 1
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


HOOKS = ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
         "register_full_backward_pre_hook"]


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("register", HOOKS)
def test_layer_with_module_hooks_calls_them(made, device, part, register):
    _, model, modules = made
    x = torch.randn(3, 20, device=device, requires_grad=True)
    seed = torch.randn(3, 12, device=device)
    expected = gradients(model, x, seed)
    seen = []
    handle = getattr(modules[part], register)(lambda *given: seen.append(given[0]))
    found = gradients(model, x, seed)
    assert seen == [modules[part]]
    torch.testing.assert_close(found, expected)
    handle.remove()
    assert is_one_node(model(x))


@pytest.mark.parametrize("register", ["register_module_forward_hook", "register_module_forward_pre_hook"])
def test_layer_with_global_hooks_calls_them(made, device, register):
    _, model, modules = made
    seen = []
    with getattr(nn.modules.module, register)(lambda module, *_: seen.append(module)):
        model(torch.randn(3, 20, device=device))
    assert all(any(one is module for one in seen) for module in modules)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("what", ["another forward", "another class", "a parametrization"])
def test_layer_with_other_module_classes_calls_them(made, device, part, what):
    _, model, modules = made
    x = torch.randn(3, 20, device=device)
    module, called, before = modules[part], [], model(x)
    if what == "another forward":
        forward = module.forward
        module.forward = lambda given: called.append(1) or forward(given)
    elif what == "another class":
        class Counted(nn.Linear):
            def forward(self, given):
                called.append(1)
                return super().forward(given)
        Counted.__module__ = nn.Linear.__module__  # the patch accepts only classes of this module
        module.__class__ = Counted
    else:
        class Same(nn.Module):
            def forward(self, weight):
                called.append(1)
                return weight
        nn.utils.parametrize.register_parametrization(module, "weight", Same())
        called.clear()
    torch.testing.assert_close(model(x), before)
    assert called


def test_factor_with_parametrization_is_called(device):
    layer, model, _ = layer_of("nn", device)
    x = torch.randn(3, 20, device=device)
    before = model(x)
    parametrizations.weight_norm(layer.lora_A)
    torch.testing.assert_close(model(x), before)


def test_layer_with_replaced_linear_forward_calls_it(made, device, monkeypatch):
    _, model, _ = made
    forward, called = nn.Linear.forward, []
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: called.append(1) or forward(self, x))
    model(torch.randn(3, 20, device=device))
    assert len(called) == 3


def profiled():
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)


def casts(profile):
    return sorted(tuple(one.input_shapes[0]) for one in profile.events() if one.name == "aten::_to_copy")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("x_dtype", [torch.bfloat16, torch.float32])
def test_float32_adapters_under_autocast_do_not_cast_activations_to_float32(device, kind, x_dtype):
    _, model, _ = layer_of(kind, device, torch.bfloat16, torch.float32)
    x = torch.randn(7, 20, device=device).to(x_dtype).requires_grad_()
    with dorajit.patch_peft() if kind == "peft" else torch.enable_grad():
        with torch.autocast(device, dtype=torch.bfloat16):
            model(x)
            with profiled() as profile:
                out = model(x)
    assert out.dtype is torch.bfloat16 and is_one_node(out)
    assert casts(profile) == [(4, 20)] + ([(7, 20)] if x_dtype is torch.float32 else []) + [(12, 4)]
    with profiled() as profile:
        out.backward(torch.ones_like(out))
    assert (7, 12) not in casts(profile) and (x_dtype is torch.float32 or (7, 20) not in casts(profile))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("autocast", [False, True])
def test_float32_adapters_over_bfloat16_match_module_calls(device, kind, autocast):
    """The result equals that of the module calls."""
    _, model, modules = layer_of(kind, device, torch.bfloat16, torch.float32)
    assert {one.weight.dtype for one in modules} == {torch.bfloat16, torch.float32}
    x = torch.randn(7, 20, device=device).bfloat16().requires_grad_()
    seed = torch.randn(7, 12, device=device).bfloat16()
    run = functools.partial(gradients, model, x, seed)
    with dorajit.patch_peft() if kind == "peft" else torch.enable_grad(), torch.autocast(
            device, dtype=torch.bfloat16, enabled=autocast):
        assert is_one_node(model(x))
        found = run()
        with modules[0].register_forward_hook(lambda *_: None):
            assert not is_one_node(model(x))
            expected = run()
    assert_same_output(found[0], expected[0], torch.bfloat16 if autocast else None)
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert one.dtype is other.dtype
        torch.testing.assert_close(one.float(), other.float(), rtol=2e-2, atol=2e-2 * other.abs().max().item())
