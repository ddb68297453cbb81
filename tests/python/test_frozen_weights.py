"""Scopes in which layers cache norms and gains: dorajit.frozen_weights() and `generate`."""

import copy
import threading

import dorajit
import pytest
import torch
from dorajit.norms import frozen
from linear_layers import layer_and_input
from reference import needs_gpu, perturb


def moved(kind, device):
    """(a layer whose adapter is not a no-op, its input)."""
    layer, x = layer_and_input(kind, device)
    return perturb(layer), x


@pytest.mark.parametrize("kind", ["linear", "embedding", "conv1d"])
@pytest.mark.parametrize("training", [False, True])
def test_norms_are_computed_once_inside_and_discarded_after(device, layer_launches, kind, training):
    layer, x = moved(kind, device)
    layer.train(training)
    expected = layer(x)
    layer_launches()
    with dorajit.frozen_weights(torch.nn.Sequential(layer)):
        for _ in range(3):
            assert torch.equal(layer(x), expected)
    assert layer_launches()["norm"] == 1
    assert not frozen._scopes
    layer(x)
    assert layer_launches()["norm"] == 1


def test_gradients_inside_match_those_outside(device):
    layer, x = moved("linear", device)
    layer(x).square().sum().backward()
    expected = [one.grad.clone() for one in layer.parameters() if one.requires_grad]
    layer.zero_grad()
    with dorajit.frozen_weights(layer):
        layer(x)
        layer(x).square().sum().backward()
    torch.testing.assert_close(expected, [one.grad for one in layer.parameters() if one.requires_grad], rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["linear", "embedding", "conv1d"])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_training_pass_after_one_in_inference_mode_has_gradients(device, layer_launches, kind, dtype):
    layer, x = moved(kind, device)
    with torch.autocast(device, dtype, enabled=dtype is not None):
        layer(x).float().square().sum().backward()
        expected = [one.grad.clone() for one in layer.parameters() if one.requires_grad]
        layer.zero_grad()
        with dorajit.frozen_weights(layer):
            layer_launches()
            with torch.inference_mode():
                layer(x)
            layer(x).float().square().sum().backward()
            assert layer_launches()["norm"] == 1
    torch.testing.assert_close(expected, [one.grad for one in layer.parameters() if one.requires_grad], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["base_layer.weight", "lora_A.weight", "lora_B.weight", "lora_magnitude_vector"])
def test_counted_write_inside_recomputes_norms(device, name):
    layer, x = moved("linear", device)
    with dorajit.frozen_weights(layer), torch.no_grad():
        layer(x)
        layer.get_parameter(name).mul_(1.5)
        found = layer(x)
    assert torch.equal(found, layer(x))


def test_other_tensors_or_scale_inside_recompute_norms(device):
    (layer, x), (other, _) = moved("linear", device), moved("linear", device)
    with dorajit.frozen_weights(layer), torch.no_grad():
        layer(x)
        layer.lora_A.weight.data = other.lora_A.weight.data * 2
        assert torch.equal(layer(x), copy.deepcopy(layer)(x))
        layer.scaling *= 3
        assert torch.equal(layer(x), copy.deepcopy(layer)(x))


def test_nested_scopes_end_also_on_errors(device, launches):
    layer, x = moved("linear", device)
    with dorajit.frozen_weights(layer):
        with pytest.raises(RuntimeError, match="stop"):
            with dorajit.frozen_weights(layer):
                layer(x)
                raise RuntimeError("stop")
        launches()
        layer(x)
        assert "weight_norm" not in launches()
    assert not frozen._scopes


def test_scope_entered_by_several_threads_is_shared(device):
    layer, x = moved("linear", device)
    with torch.no_grad():
        expected = layer(x)
    found = []

    def run():
        for _ in range(50):
            with dorajit.frozen_weights(layer), torch.no_grad():
                found.append(torch.equal(layer(x), expected))
    threads = [threading.Thread(target=run) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [True] * 200 and not frozen._scopes


def test_frozen_weights_of_non_module_raises():
    with pytest.raises(TypeError, match="`model` is a list"):
        with dorajit.frozen_weights([]):
            pass


@needs_gpu
def test_captured_graph_inside_scope_computes_its_own_norms(launches):
    layer, x = moved("linear", "cuda")
    with torch.no_grad(), dorajit.frozen_weights(layer):
        layer(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = layer(x)
    with torch.no_grad():
        layer.lora_B.weight.mul_(2)
        graph.replay()
        assert torch.equal(out, layer(x))


# --- generate --------------------------------------------------------------------------------------

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
peft = pytest.importorskip("peft", reason="PEFT is not installed")
TOKENS = 5


@pytest.fixture
def llama(device):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=1, vocab_size=64,
                                      num_attention_heads=2, num_key_value_heads=2)
    model = peft.get_peft_model(transformers.LlamaForCausalLM(config).to(device), peft.LoraConfig(
        use_dora=True, r=4, target_modules=["q_proj", "down_proj"])).eval()
    with torch.no_grad():
        for name, one in model.named_parameters():
            if "lora_B" in name:
                one.normal_()
    return model


def generate(model, device):
    ids = torch.arange(6, device=device)[None]
    return model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS,
                          min_new_tokens=TOKENS, do_sample=False, pad_token_id=0)


@pytest.mark.parametrize("of_all", [True, False])
def test_generate_of_patched_model_computes_each_norm_once(llama, device, layer_launches, of_all):
    expected = generate(llama, device)
    with dorajit.patch_peft(None if of_all else llama):
        layer_launches()
        assert torch.equal(generate(llama, device), expected)
        counts = layer_launches()
        assert counts["norm"] == 2 and counts["compose_residual"] == 2 * TOKENS
        with torch.no_grad():
            for one in llama.parameters():
                one.data.mul_(1.25)
        found = generate(llama, device)
        assert layer_launches()["norm"] == 2
    assert torch.equal(found, generate(llama, device))
    assert not frozen._scopes


def test_generate_of_unpatched_model_is_unchanged(llama, device):
    other = copy.deepcopy(llama)
    with dorajit.patch_peft(other):
        assert "generate" in vars(transformers.generation.GenerationMixin)
        assert not hasattr(llama.base_model.model, "_dorajit_patches")
        assert hasattr(other.base_model.model, "_dorajit_patches")
    assert not hasattr(other.base_model.model, "_dorajit_patches")
    assert not hasattr(transformers.generation.GenerationMixin.generate, "as_installed")
