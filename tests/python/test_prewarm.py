"""python -m dorajit.prewarm: what is recorded from a model's config is what its real run asks for."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")
pytest.importorskip("transformers")

import dorajit
from dorajit import testing
from dorajit.prewarm import models, passes

HERE = pathlib.Path(__file__).parent
NAMES = ("llama", "qwen3", "gemma3", "gemma3_vision", "mistral3", "mixtral", "qwen3_5", "gpt2", "bert", "vit", "whisper",
         "t5", "qwen3_vl", "qwen3_vl_language", "flux", "sdxl")
ARCH = "native-cpu"


@pytest.fixture(scope="module")
def compared():
    """(model, recipe, **options) -> (recorded, run), by a process that has imported everything."""
    with subprocess.Popen([sys.executable, "-W", "ignore", HERE / "recorded_models.py"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env={**os.environ, "DORAJIT_LOG": "error", "OMP_NUM_THREADS": "1"}) as server:
        def ask(model, recipe, **options):
            print(json.dumps([model, recipe, options]), file=server.stdin, flush=True)
            answer = json.loads(server.stdout.readline())
            assert "error" not in answer, answer["error"]
            return set(answer["recorded"]), set(answer["run"])
        yield ask
        server.stdin.close()


@pytest.mark.parametrize("recipe", models.RECIPES)
@pytest.mark.parametrize("model", NAMES)
def test_recording_is_what_a_run_asks_for(compared, model, recipe):
    if recipe == "nf4":
        pytest.importorskip("bitsandbytes", exc_type=ImportError)
    if model in ("flux", "sdxl"):
        pytest.importorskip("diffusers")
    recorded, run = compared(model, recipe)
    assert run and recorded == run


@pytest.mark.parametrize("options", [{"dropout": 0.1}, {"checkpoint": True}, {"mlp": False}])
@pytest.mark.parametrize("recipe", models.RECIPES)
def test_settings_of_a_run_are_recorded(compared, recipe, options):
    recorded, run = compared("llama", recipe, **options)
    assert run and recorded == run


def test_mlp_as_one_node_is_recorded_only_where_it_runs(compared):
    has_gated = [any(one.startswith("gated_silu_backward/") for one in compared("llama", "bf16", mlp=mlp)[0])
                 for mlp in (True, False)]
    assert has_gated == [True, False]


class Layer(torch.nn.Module):
    """A model of the user's own."""

    def __init__(self):
        super().__init__()
        self.inner = dorajit.nn.DoRALinear(torch.nn.Linear(64, 128), 4)

    def forward(self, x):
        return self.inner(x)


def test_model_of_the_users_own_is_unchanged():
    model = Layer()
    before = {name: (one, one.clone()) for name, one in model.named_parameters()}
    found = dorajit.prewarm(model, [torch.randn(8, 64)], arch="sm_90", list_only=True)
    assert any(one.startswith("weight_norm/") for one in found["sm_90"])
    assert model.training
    for name, one in model.named_parameters():
        assert one is before[name][0] and torch.equal(one, before[name][1]) and one.grad is None


def test_recorded_calls_launch_nothing():
    model = Layer()
    before = testing.launch_counts()
    dorajit.prewarm(model, [torch.randn(8, 64)], arch=["sm_80", "native-cpu"], list_only=True)
    assert testing.launch_counts() == before


def test_kernels_are_chosen_for_the_architecture():
    model = Layer().to(torch.bfloat16)
    found = dorajit.prewarm(model, [torch.randn(8, 64, dtype=torch.bfloat16)], arch=["sm_75", "sm_90"], list_only=True)
    assert any(one.startswith("compose_low_rank/") for one in found["sm_90"])
    assert not any(one.startswith("compose_low_rank/") for one in found["sm_75"])


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="`model` is a int"):
        dorajit.prewarm(3)
    with pytest.raises(ValueError, match="`arch` is 'hopper'; give sm_80"):
        dorajit.prewarm(Layer(), [torch.randn(8, 64)], arch="hopper")
