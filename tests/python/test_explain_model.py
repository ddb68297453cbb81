"""dorajit.explain_dispatch of a model agrees with what its forward pass does, and the first call of a model logs it."""

import contextlib
import copy
import logging

import dorajit
import pytest
import torch
from torch import nn

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

import peft_models
from observers import Dispatching
from peft import LoraConfig, get_peft_model
from recipes import BASES, BF16, F32, IN, OUT, RANK, SETTINGS, adapted, int8, is_node, nf4, plain


def layer_of(model):
    return model.base_model.model[0]


def hook(module):
    module.register_forward_hook(lambda *_: None)


def second_adapter(model):
    model.add_adapter("second", model.peft_config["default"])
    model.base_model.set_adapter(["default", "second"])


def of_dropout(module):
    def change(model):
        layer_of(model).lora_dropout["default"] = module
    return change


# What is done to a model -> the path, a part of the reason.
CHANGES = {
    "nothing": (lambda model: None, "node", "one autograd node"),
    "eval": (lambda model: model.eval(), "node", "one autograd node"),
    "dropout": (of_dropout(nn.Dropout(0.1)), "node", "one autograd node"),
    "other dropout": (of_dropout(nn.AlphaDropout(0.1)), "composed", "lora_dropout is not a plain torch.nn.Dropout"),
    "hook of lora_A": (lambda model: hook(layer_of(model).lora_A["default"]), "composed", "lora_A has hooks"),
    "hook of the base": (lambda model: hook(layer_of(model).base_layer), "composed", "the base layer has hooks"),
    "hook of the DoRA layer": (lambda model: hook(layer_of(model).lora_magnitude_vector["default"]), "composed",
                               "PEFT's DoRA layer has hooks"),
    "trained weight": (lambda model: layer_of(model).base_layer.weight.requires_grad_(), "composed", "freeze it"),
    "second adapter": (second_adapter, "composed", "several adapters are active"),
    "parametrization": (lambda model: nn.utils.parametrizations.weight_norm(layer_of(model).base_layer), "composed",
                        "base layer is a Parametrized"),
    "scaling": (lambda model: layer_of(model).scaling.update(default=torch.tensor(2.0)), "peft", "scaling is a Tensor"),
    "merged": (lambda model: model.merge_adapter(), "base", "merged"),
}


def launched(model, x, launches):
    launches()
    found = model(x)
    return is_node(found), launches()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.filterwarnings("ignore")
def test_explanation_of_a_changed_layer_agrees_with_its_forward_pass(device, launches, change):
    model = adapted(plain, device)
    act, path, reason = CHANGES[change]
    act(model)
    x = torch.randn(3, IN, device=device, requires_grad=True)
    assert dorajit.explain_dispatch(model)["base_model.model.0"].path == "peft"  # not patched
    with dorajit.patch_peft(strict=True) as patch:
        launches()
        found = dorajit.explain_dispatch(model)
        assert launches() == {} and list(found) == ["base_model.model.0"]
        assert found["base_model.model.0"].path == path and reason in found["base_model.model.0"].reason
        before = sum(patch.declined.values())
        node, counts = launched(model, x, launches)
        assert node == (path == "node") and bool(counts) == (path in ("node", "composed"))
        assert (sum(patch.declined.values()) > before) == (path == "peft")


@pytest.mark.parametrize("how, reason", [
    ("disabled", "kernels are switched off"), ("backward", "PEFT_DORA_FUSED_BACKWARD=0"),
    ("mode", "observes the layer"), ("global hook", "runs global module hooks"), ("no_grad", None)])
def test_explanation_follows_the_state_of_the_process(device, monkeypatch, how, reason):
    from dorajit.control import state
    contexts = {"disabled": dorajit.disabled, "backward": lambda: state.switches["fused_backward"].override(False),
                "mode": Dispatching, "no_grad": torch.no_grad,
                "global hook": lambda: nn.modules.module.register_module_forward_hook(lambda *_: None)}
    model, layer = adapted(plain, device), dorajit.nn.DoRALinear(nn.Linear(IN, OUT, device=device), RANK)
    with dorajit.patch_peft(strict=True):
        assert {one.path for one in dorajit.explain_dispatch(nn.Sequential(model, layer)).values()} == {"node"}
        with contexts[how]():
            for one in (model, layer):
                made, = dorajit.explain_dispatch(one).values()
                assert made.path == ("node" if reason is None else "composed") and (reason or "") in made.reason
                out = one(torch.randn(3, IN, device=device, requires_grad=True))
                assert is_node(out) == (reason is None and how != "no_grad")


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("dtype, float32, autocast", SETTINGS)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_recipes_are_explained_as_nodes_before_any_forward_pass(device, launches, base, dtype, float32, autocast, dropout):
    model = adapted(base, device, dtype, float32, dropout)
    with dorajit.patch_peft(strict=True), torch.autocast(device, dtype=BF16, enabled=autocast):
        assert [one.path for one in dorajit.explain_dispatch(model).values()] == ["node"]


def test_int8_of_bitsandbytes_stays_composed_and_is_explained(device):
    """Its product quantizes x, too, so it is not that of a dequantized weight."""
    model = adapted(int8, device)
    with dorajit.patch_peft(strict=True):
        made, = dorajit.explain_dispatch(model).values()
        assert not is_node(model(torch.randn(3, IN, device=device, requires_grad=True)))
    assert made.path == "composed" and "Linear8bitLt has no node" in made.reason


def test_float16_base_with_a_float32_input_is_not_promised(device):
    """The input is not known; the answer is for one of the base layer's type."""
    model = adapted(nf4, device, torch.float16)
    with dorajit.patch_peft(strict=True):
        made, = dorajit.explain_dispatch(model).values()
        assert made.path == "node" and is_node(model(torch.randn(3, IN, device=device, dtype=torch.float16)))


@pytest.mark.parametrize("kind", peft_models.KINDS)
def test_every_kind_of_layer_is_explained(device, kind):
    model = peft_models.adapted(kind, device)
    with dorajit.patch_peft(strict=True):
        made, = dorajit.explain_dispatch(model).values()
        assert made.path == ("node" if kind in ("linear", "conv1d_gpt2") else "composed")
        if kind != "embedding":
            x = model.base_model.model.example(device).requires_grad_()
            assert is_node(model(x)) == (made.path == "node")
            hook(model.base_model.model.layer.base_layer)
            assert not is_node(model(x))


def test_layers_of_nn_are_explained():
    layer = dorajit.nn.DoRALinear(nn.Linear(IN, OUT), RANK)
    merged = copy.deepcopy(layer)
    merged.merge()
    hooked = copy.deepcopy(layer)
    hook(hooked.lora_B)
    model = nn.Sequential(layer, merged, hooked, dorajit.nn.DoRAEmbedding(nn.Embedding(8, 6), RANK))
    found = dorajit.explain_dispatch(model)
    assert [one.path for one in found.values()] == ["node", "base", "composed", "composed"]
    assert found["2"].reason.startswith("lora_B has hooks")


def test_table_groups_layers_and_names_choices_and_magnitudes(device):
    models = nn.ModuleList(adapted(plain, device, BF16, False) for _ in range(3))
    hook(layer_of(models[2]).lora_A["default"])
    with dorajit.patch_peft(strict=True, dropout="low_rank", low_rank_dtype="base"):
        first, *rows = str(dorajit.explain_dispatch(models)).splitlines()
    assert first == ("2 of 3 DoRA layers run as one node, 1 composed; dropout: low_rank, low-rank products without "
                     "autocast: base")
    assert rows[0].split() == ["2", "node", "one", "autograd", "node"]
    assert "composed  lora_A has hooks" in rows[1] and "remove them" in rows[1] and "(2.base_model.model.0)" in rows[1]
    assert "3  trained magnitudes have 16 bits" in rows[2]


def test_layer_with_sharded_parameters_is_not_predicted():
    """FSDP frees the memory of weights between forward passes."""
    layer = dorajit.nn.DoRALinear(nn.Linear(IN, OUT), RANK)
    layer.base_layer.weight.untyped_storage().resize_(0)
    assert dorajit.explain_dispatch(layer)[""].path == "sharded"


class Wrapper(nn.Module):
    """Passes attributes on, as FullyShardedDataParallel does."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)


def test_layers_in_wrappers_are_counted_once():
    with dorajit.patch_peft(strict=True):
        for layer in dorajit.nn.DoRALinear(nn.Linear(IN, OUT), RANK), layer_of(adapted(plain, "cpu")):
            assert list(dorajit.explain_dispatch(Wrapper(layer))) == ["module"]


def test_model_without_layers_or_with_other_arguments_raises():
    with pytest.raises(ValueError, match="a model without DoRA layers"):
        dorajit.explain_dispatch(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="a model takes no other arguments"):
        dorajit.explain_dispatch(adapted(plain, "cpu"), torch.ones(3))


# --- the line at the first call ------------------------------------------------------------------

@contextlib.contextmanager
def logged(caplog):
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="dorajit"):
        yield caplog.records


@pytest.mark.parametrize("of_model", [False, True])
def test_first_call_of_a_patched_model_logs_one_line(caplog, of_model):
    model, other = adapted(plain, "cpu"), adapted(plain, "cpu")
    hook(layer_of(other).lora_A["default"])
    x = torch.randn(3, IN)
    with logged(caplog) as records:
        model(x)
        assert not records
        with dorajit.patch_peft(model if of_model else None, strict=True):
            for _ in range(3):
                model(x)
                other(x)
        lines = [(one.levelname, one.getMessage()) for one in records]
    assert lines[0][0] == "INFO" and lines[0][1].startswith("dorajit: 1 of 1 DoRA layers run as one node; dropout: peft")
    if of_model:
        assert len(lines) == 1
    else:
        assert len(lines) == 2 and lines[1][0] == "WARNING" and "0 of 1" in lines[1][1]


def test_first_call_is_shown_where_the_log_level_asks_for_it(monkeypatch, capsys):
    monkeypatch.setenv("DORAJIT_LOG", "info")
    model = adapted(plain, "cpu")
    with dorajit.patch_peft(model, strict=True):
        model(torch.randn(3, IN))
    assert capsys.readouterr().err.startswith("dorajit: 1 of 1 DoRA layers run as one node")


def test_scripted_child_is_passed_over():
    model = get_peft_model(nn.Sequential(nn.Linear(IN, OUT), torch.jit.script(nn.ReLU())),
                           LoraConfig(target_modules=["0"], use_dora=True))
    with dorajit.patch_peft(strict=True), dorajit.frozen_weights(model):
        model(torch.randn(3, IN))
        assert [one.path for one in dorajit.explain_dispatch(model).values()] == ["node"]


def test_copies_for_data_parallel_log_nothing(caplog):
    model = adapted(plain, "cpu")
    with dorajit.patch_peft(strict=True), logged(caplog) as records:
        for _ in range(2):
            model._replicate_for_data_parallel()(torch.randn(3, IN))
        assert not records
        copy.deepcopy(model)(torch.randn(3, IN))
        assert len(records) == 1


def test_active_adapter_without_dora_is_left_to_peft():
    model = adapted(plain, "cpu")
    model.add_adapter("lora", LoraConfig(r=RANK, target_modules=model.peft_config["default"].target_modules))
    model.set_adapter("lora")
    with dorajit.patch_peft(strict=True):
        assert dict(dorajit.explain_dispatch(model)) == {
            "base_model.model.0": ("peft", "the active adapters are not DoRA")}


def test_first_call_sees_autocast_and_is_not_traced(caplog, fresh_compiler):
    model = adapted(plain, "cpu", F32)
    x = torch.randn(3, IN)
    with dorajit.patch_peft(strict=True), logged(caplog) as records:
        torch.compile(model, fullgraph=True, backend="aot_eager")(x)
        assert not records
        model(x)
        assert len(records) == 1


def test_model_for_a_task_logs_its_first_call(caplog):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                      num_attention_heads=2, num_key_value_heads=2)
    model = get_peft_model(transformers.LlamaForCausalLM(config), LoraConfig(
        use_dora=True, r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    with dorajit.patch_peft(strict=True), logged(caplog) as records:
        for _ in range(2):
            model(torch.arange(4)[None])
        assert [one.getMessage()[:47] for one in records] == ["dorajit: 2 of 2 DoRA layers run as one node; dr"]
