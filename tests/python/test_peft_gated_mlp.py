"""patch_peft(): gated MLPs of transformers over DoRA layers as one node each."""

import weakref

import pytest
import torch

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

import dorajit
from dorajit.layers import gated_mlp, modules
from peft import LoraConfig, get_peft_model
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, GlmConfig, GlmForCausalLM, LlamaConfig, LlamaForCausalLM,
                          Phi3Config, Phi3ForCausalLM)
from transformers.models.llama.modeling_llama import LlamaMLP

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 100}
IDS = torch.arange(18).view(2, 9)


def llama(**changed):
    return LlamaForCausalLM(LlamaConfig(**SIZES, **changed))


def gemma(**changed):
    return Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, head_dim=8, **changed))


def phi3(**changed):
    """gate and up are one layer."""
    return Phi3ForCausalLM(Phi3Config(**SIZES, pad_token_id=0, **changed))


def glm(**changed):
    return GlmForCausalLM(GlmConfig(**SIZES, head_dim=8, pad_token_id=0, **changed))


def adapted(make, device, targets="all-linear", dropout=0.0, **changed):
    torch.manual_seed(0)
    config = LoraConfig(use_dora=True, r=4, target_modules=targets, init_lora_weights=False, lora_dropout=dropout)
    model = get_peft_model(make(**changed).to(device), config).train()
    for name, one in model.named_parameters():
        if "magnitude" in name:  # gains that are far from 1
            one.data.mul_(1 + torch.rand_like(one))
    return model


def mlp_of(model):
    return model.base_model.model.model.layers[0].mlp


def hook(model):
    mlp_of(model).up_proj.register_forward_hook(lambda *of: None)


def set_dropout(model, **probabilities):
    for name, p in probabilities.items():
        getattr(mlp_of(model), name).lora_dropout["default"].p = p


@torch.no_grad()
def zero_magnitude(model, name):
    getattr(mlp_of(model), name).lora_magnitude_vector["default"].weight[3] = 0.0


@pytest.fixture
def nodes(monkeypatch):
    """A function that returns how many nodes have run since its last call."""
    calls = []
    forward = gated_mlp.forward
    monkeypatch.setattr(gated_mlp, "forward", lambda *of: calls.append(of) or forward(*of))

    def count():
        made = len(calls)
        calls.clear()
        return made
    return count


def step(model):
    model.zero_grad()
    ids = IDS.to(model.device)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return [loss.detach(), *(one.grad.clone() for one in model.parameters() if one.requires_grad)]


def assert_near(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5 * float(other.abs().max()))


@pytest.mark.parametrize("make", [llama, gemma, phi3, glm])
@pytest.mark.parametrize("is_of_model", [False, True])
def test_steps_are_those_of_peft(device, nodes, make, is_of_model):
    model = adapted(make, device)
    expected = step(model)
    with dorajit.patch_peft(model if is_of_model else None, strict=True):
        assert_near(step(model), expected)
        assert nodes() == SIZES["num_hidden_layers"]
    torch.testing.assert_close(step(model), expected, rtol=0, atol=0)
    assert nodes() == 0
    with dorajit.patch_peft():
        step(model)
        assert nodes() == SIZES["num_hidden_layers"]


@pytest.mark.parametrize("dropout, is_trained, runs", [(0.0, True, 2), (0.0, False, 0), (0.1, True, 0)])
def test_gate_and_up_in_one_layer(device, nodes, dropout, is_trained, runs):
    model = adapted(phi3, device, dropout=dropout)
    if not is_trained:
        model.requires_grad_(False)
    ids = IDS.to(device)
    torch.manual_seed(1)
    expected = model(input_ids=ids).logits
    with dorajit.patch_peft(model, strict=True):
        torch.manual_seed(1)
        assert_near([model(input_ids=ids).logits.detach()], [expected.detach()])
        assert nodes() == runs


def test_mlps_may_be_left_to_their_layers(device, nodes):
    model = adapted(llama, device)
    with dorajit.patch_peft():
        step(model)
        assert nodes() == 2
        with dorajit.patch_peft(mlp=False):
            step(model)
            assert nodes() == 0
        step(model)
        assert nodes() == 2


def test_explain_dispatch_counts_them(device):
    model = adapted(llama, device)
    with dorajit.patch_peft(model):
        assert "14 of 14 DoRA layers run as one node, 6 of them in gated MLPs" in str(
            dorajit.explain_dispatch(model))
        hook(model)
        assert "14 of 14 DoRA layers run as one node, 3 of them" in str(dorajit.explain_dispatch(model))
    with dorajit.patch_peft(model, mlp=False):
        assert "gated MLP" not in str(dorajit.explain_dispatch(model))


# Options of the model, what is done to it, and how many nodes run; an MLP that differs is left to its layers.
CHANGES = {
    "magnitude of 0 in gate": ({}, lambda model: zero_magnitude(model, "gate_proj"), 1),
    "magnitude of 0 in up": ({}, lambda model: zero_magnitude(model, "up_proj"), 1),
    "magnitude of 0 in down": ({}, lambda model: zero_magnitude(model, "down_proj"), 2),
    "checkpoints": ({}, lambda model: model.gradient_checkpointing_enable({"use_reentrant": False}), 4),  # each twice
    "hook": ({}, lambda model: hook(model), 1),
    "other activation": ({}, lambda model: setattr(mlp_of(model).act_fn, "forward", torch.nn.functional.relu), 1),
    "dropout": ({"dropout": 0.1}, lambda model: None, 2),
    "dropout and checkpoints": ({"dropout": 0.1}, lambda model: model.gradient_checkpointing_enable(
        {"use_reentrant": False}), 4),
    "dropout of down alone": ({"dropout": 0.1}, lambda model: set_dropout(model, gate_proj=0.0, up_proj=0.0), 2),
    "dropout of up alone": ({"dropout": 0.1}, lambda model: set_dropout(model, gate_proj=0.0, down_proj=0.0), 2),
    "disabled adapter": ({}, lambda model: mlp_of(model).gate_proj.enable_adapters(False), 1),
    **{str(options): (options, lambda model: None, 0) for options in (
        {"mlp_bias": True}, {"targets": ["gate_proj", "down_proj"]}, {"hidden_act": "gelu_new"})}}


@pytest.mark.parametrize("options, change, joined", CHANGES.values(), ids=CHANGES)
def test_steps_of_other_models_are_those_of_peft(device, nodes, options, change, joined):
    model = adapted(llama, device, **options)
    change(model)
    torch.manual_seed(1)
    expected = step(model)
    with dorajit.patch_peft():
        torch.manual_seed(1)
        assert_near(step(model), expected)
    assert nodes() == joined


def test_low_rank_dropout_has_the_masks_of_the_layers(device, nodes):
    model = adapted(llama, device, dropout=0.1)

    def seeded(mlp):
        torch.manual_seed(1)
        with dorajit.patch_peft(mlp=mlp, dropout="low_rank"):
            return step(model)

    assert_near(seeded(True), seeded(False))
    assert nodes() == 2


class Dropped:
    """An MLP with dropout of PEFT's meaning, whose node has to keep `inner` of all three layers."""

    def __init__(self, device):
        self.model = adapted(llama, device, dropout=0.1).double()
        self.mlp = mlp_of(self.model)
        self.x = torch.randn(2, 5, SIZES["hidden_size"], dtype=torch.float64, device=device, requires_grad=True)
        self.inputs = [self.x, *(one for one in self.mlp.parameters() if one.requires_grad)]

    def run(self, mlp, function):
        torch.manual_seed(1)
        with dorajit.patch_peft(self.model, mlp=mlp):
            return function(self.mlp(self.x))


def test_second_order_gradients_with_dropout(device, nodes):
    dropped = Dropped(device)

    def second(out):
        first = torch.autograd.grad(out.sum(), dropped.inputs, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), dropped.inputs)

    torch.testing.assert_close(dropped.run(True, second), dropped.run(False, second), rtol=1e-9, atol=1e-9)
    assert nodes() == 1


def test_dropout_saves_and_launches_less_than_the_layers(device, layer_launches):
    dropped = Dropped(device)

    def saved(mlp):
        """Of the activations' size, and the launches."""
        kept = {}
        def keep(one):
            if one.shape[-1] == SIZES["intermediate_size"] and one.dim() == 3 and one.dtype.is_floating_point:
                kept[one.data_ptr()] = one
            return one
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
            torch.autograd.grad(dropped.run(mlp, torch.sum), dropped.inputs)
        return len(kept), layer_launches()

    layer_launches()
    (node, launches), (layers, _) = saved(True), saved(False)
    assert (node, layers) == (4, 6)  # e, u, inner of both; the layers also act(e) and a
    assert launches["gated_silu"] == 2 and launches["gated_silu_backward"] == 1


def quantized(names=("gate_proj", "up_proj", "down_proj"), compute_dtype=torch.float32):
    bnb = pytest.importorskip("bitsandbytes")
    model = llama()
    for layer in model.model.layers:
        for name in names:
            base = getattr(layer.mlp, name)
            made = bnb.nn.Linear4bit(base.in_features, base.out_features, bias=False, compute_dtype=compute_dtype,
                                     quant_type="nf4")
            made.weight = bnb.nn.Params4bit(base.weight.data, requires_grad=False, quant_type="nf4")
            setattr(layer.mlp, name, made)
    return model


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_one_dequantized_weight_is_alive_at_a_time(device, monkeypatch, dropout):
    mlp_model = adapted(quantized, device, dropout=dropout)
    made, alive = [], []
    dense = modules.Quantized.dense

    def counted(base):
        if not base.is_dense():
            made.append(weakref.ref(dense(base)))
        alive.append(sum(one() is not None for one in made))
        return dense(base)

    monkeypatch.setattr(modules.Quantized, "dense", counted)
    x = torch.randn(2, 5, SIZES["hidden_size"], device=device, requires_grad=True)
    with dorajit.patch_peft(mlp_model, strict=True):
        mlp_of(mlp_model)(x).sum().backward()
        with torch.no_grad():
            mlp_of(mlp_model)(x)
    assert len(made) >= 9 and max(alive) == 1


def test_layers_that_are_quantized_in_part_run_apart(device, nodes):
    model = adapted(lambda: quantized(["gate_proj"], torch.bfloat16), device)
    x = torch.randn(2, 5, SIZES["hidden_size"], device=device)
    with dorajit.patch_peft(model), torch.autocast(device, torch.bfloat16):
        assert mlp_of(model)(x).dtype is torch.bfloat16
    assert nodes() == 0


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_quantized_weights(device, nodes, is_checkpointed, dropout):
    model = adapted(quantized, device, dropout=dropout)
    if is_checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    torch.manual_seed(1)
    with dorajit.patch_peft(mlp=False):
        expected = step(model)
    torch.manual_seed(1)
    with dorajit.patch_peft():
        assert_near(step(model), expected)
    assert nodes() == 2 + 2 * is_checkpointed


@pytest.mark.parametrize("factor, text", [
    (2, None), *((1, text) for text in ("", "a = 1", "class Other:\n    pass", "    )"))])
def test_a_forward_whose_source_is_unknown_or_has_changed_since_it_was_imported_is_left_alone(
        device, nodes, monkeypatch, factor, text):
    class Doubled(LlamaMLP):
        def forward(self, x):
            return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x)) * 2

    class Same(LlamaMLP):
        def forward(self, x):
            return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))

    monkeypatch.setattr("transformers.models.llama.modeling_llama.LlamaMLP", Doubled if factor == 2 else Same)
    if text is not None:
        monkeypatch.setattr("inspect.getsource", lambda _: text)
    model = adapted(llama, device)
    expected = step(model)
    with dorajit.patch_peft():
        assert_near(step(model), expected)
    assert nodes() == 0


def test_generated_tokens_are_those_of_peft(device):
    model = adapted(llama, device).eval()
    ids = IDS.to(device)
    expected = model.generate(input_ids=ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
    with dorajit.patch_peft(model):
        assert torch.equal(model.generate(input_ids=ids, max_new_tokens=6, do_sample=False, pad_token_id=0), expected)
