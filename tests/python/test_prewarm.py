"""python -m dorajit.prewarm: what is recorded from a model's config is what its real run asks for."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import warnings

import model_configs
import pytest
import ranks as processes
import torch

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")
pytest.importorskip("transformers")

import dorajit
from dorajit import program, testing
from dorajit.prewarm import models, passes

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """(model, recipe, device, **options) -> (recorded, run), by a process that has imported everything. Its kernels are
    those of all workers of pytest-xdist."""
    kernels = tmp_path_factory.getbasetemp()
    kernels = (kernels.parent if "PYTEST_XDIST_WORKER" in os.environ else kernels) / "kernels"
    kernels.mkdir(exist_ok=True)
    with subprocess.Popen([sys.executable, "-W", "ignore", HERE / "recorded_models.py"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env={**os.environ, "DORAJIT_CACHE_DIR": str(kernels), "DORAJIT_LOG": "error",
                               "OMP_NUM_THREADS": "1"}) as server:
        def ask(model, recipe, device, **options):
            print(json.dumps([model, recipe, {**options, "device": device}]), file=server.stdin, flush=True)
            answer = json.loads(server.stdout.readline())
            assert "error" not in answer, answer["error"]
            return set(answer["recorded"]), set(answer["run"])
        yield ask
        server.stdin.close()


@pytest.mark.parametrize("true", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["tiny", "true"])
@pytest.mark.parametrize("recipe", models.RECIPES)
@pytest.mark.parametrize("model", model_configs.TINY)
def test_recording_is_what_a_run_asks_for(compared, model, recipe, true, device):
    if recipe == "nf4":
        pytest.importorskip("bitsandbytes", exc_type=ImportError)
    if model in ("flux", "sdxl"):
        pytest.importorskip("diffusers")
    if (model, recipe, device, true) == ("qwen3_vl_language", "nf4", "cpu", True):
        pytest.skip("the tower has layers of 4304 outputs; on a CPU those of bitsandbytes are multiples of 32")
    recorded, run = compared(model, recipe, device, true=true)
    assert run and recorded == run


@pytest.mark.parametrize("recipe", models.RECIPES)
def test_prewarmed_run_compiles_and_tunes_nothing(tmp_path, recipe, device):
    """The first step and the first generation, in a process of their own."""
    if recipe == "nf4":
        pytest.importorskip("bitsandbytes", exc_type=ImportError)
    if device == "cpu" and shutil.which("clang++-19") is None:
        pytest.skip("clang++-19, which compiles kernels for the CPU, is missing")
    (tmp_path / "config.json").write_text(json.dumps(model_configs.TINY["llama"]))
    environment = {**os.environ, "DORAJIT_CACHE_DIR": str(tmp_path / "cache"), "DORAJIT_CXX": "clang++-19",
                   "DORAJIT_TUNE": "first_use", "DORAJIT_TUNE_SECONDS": "0.2", "OMP_NUM_THREADS": "1"}
    (tmp_path / "cache").mkdir()

    def run(*words):
        done = subprocess.run([sys.executable, "-W", "ignore", *words], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    arch = ["--arch", "native-cpu"] if device == "cpu" else []
    run("-m", "dorajit.prewarm", "--model", tmp_path, "--tokens", "24", "--rank", "8", "--recipe", recipe, *arch)
    made = json.loads(run(HERE / "recorded_models.py", json.dumps(["llama", recipe, {"device": device}])).splitlines()[-1])
    assert made.get("made", {}).pop("trials") == 0 or device == "cpu", made  # a CPU is tuned where it is named
    assert made["made"] == {"compilations": 0, "builtin_kernels": 0}, made


@pytest.mark.parametrize("options", [{"dropout": 0.1}, {"checkpoint": True}, {"mlp": False}])
@pytest.mark.parametrize("recipe", models.RECIPES)
def test_settings_of_a_run_are_recorded(compared, recipe, options, device):
    recorded, run = compared("llama", recipe, device, **options)
    assert run and recorded == run


def test_mlp_as_one_node_is_recorded_only_where_it_runs(compared, device):
    has_gated = [any(one.startswith("gated_silu_backward/") for one in compared("llama", "bf16", device, mlp=mlp)[0])
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


def listed(*layers, **more):
    """The problems of a sequence of layers of 64 columns."""
    return dorajit.prewarm(torch.nn.Sequential(*layers), [torch.randn(8, 64)], arch="sm_90", list_only=True, **more)["sm_90"]


def test_wrong_arguments_are_named():
    given = [torch.randn(8, 64)]
    with pytest.raises(TypeError, match="`model` is a int"):
        dorajit.prewarm(3)
    with pytest.raises(TypeError, match="`example_inputs` has a Tensor"):
        dorajit.prewarm(Layer(), given[0])
    with pytest.raises(ValueError, match="`autocast` is 'bf16'; give torch.bfloat16"):
        dorajit.prewarm(Layer(), given, autocast="bf16")
    for arch in ("hopper", "sm_9", "sm_90x", 90):
        with pytest.raises(ValueError, match=f"`arch` is {arch!r}; give sm_80"):
            dorajit.prewarm(Layer(), given, arch=[arch])
    for inputs, more in (([], {}), ([given], {"training": False, "inference": False})):
        with pytest.raises(ValueError, match="nothing is asked for"):
            dorajit.prewarm(Layer(), *inputs, arch="sm_90", **more)


class Counting(torch.nn.Module):
    """Changes its buffers and an attribute in a pass."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(64))
        self.last = None

    def forward(self, x):
        self.calls += 1
        self.mean.add_(x.mean(0))
        self.last = x
        self.made = torch.nn.Dropout()
        return self.made(x)


def test_state_of_modules_is_restored(tmp_path):
    model = torch.nn.Sequential(Counting(), Layer()).eval()
    given, mean, random = [torch.randn(8, 64)], model[0].mean, torch.random.get_rng_state()
    dorajit.prewarm(model, given, arch="sm_90", list_only=True)
    assert model[0].calls == 0 and model[0].mean is mean and not mean.any() and model[0].last is None
    assert not hasattr(model[0], "made") and torch.equal(torch.random.get_rng_state(), random)
    assert not model.training and not model[1].training
    torch.save(model.state_dict(), tmp_path / "state")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_of_the_caller_may_be_off(mode):
    with mode():
        found = listed(Layer())
    assert found == listed(Layer())
    assert any(one.startswith("magnitude_backward/") for one in found)


def compiled_in_place():
    layer = Layer()
    layer.compile()
    return layer


@pytest.mark.parametrize("make", [lambda: torch.compile(Layer()), compiled_in_place,
                                  lambda: torch.nn.Sequential(torch.compile(Layer()))])
@pytest.mark.skipif(not hasattr(torch.compiler, "set_stance"), reason="needs PyTorch 2.6")
def test_compiled_parts_are_recorded_as_they_were_written(make):
    assert dorajit.prewarm(make(), [torch.randn(8, 64)], arch="sm_90", list_only=True)["sm_90"] == listed(Layer())


@pytest.mark.parametrize("make", [compiled_in_place, lambda: torch.nn.Sequential(torch.compile(Layer()))])
def test_compiled_parts_are_refused_by_an_older_torch(make, monkeypatch):
    monkeypatch.delattr(torch.compiler, "set_stance", raising=False)
    with pytest.raises(ValueError, match="compiled parts .* cannot be recorded"):
        listed(make())


def test_values_of_floating_point_tensors_are_not_recorded():
    class Reads(torch.nn.Module):
        def forward(self, x):
            return x if x.sum().item() > 0 else -x

    with pytest.raises(dorajit.Error, match="set DORAJIT_RECORD in a real run"):
        listed(Reads())


def test_torchscript_is_refused():
    with pytest.raises(ValueError, match="a part in TorchScript, which cannot be recorded"):
        listed(torch.jit.script(torch.nn.ReLU()), Layer())


def test_8_bit_weights_are_refused():
    bitsandbytes = pytest.importorskip("bitsandbytes", exc_type=ImportError)
    with pytest.raises(ValueError, match="8-bit weights of bitsandbytes, which cannot be recorded"):
        listed(bitsandbytes.nn.Linear8bitLt(64, 64, has_fp16_weights=False), Layer())


def _sharded(rank, device):
    model = processes.fully_shard(Layer(), device)
    with pytest.raises(ValueError, match="sharded weights, which cannot be recorded"):
        dorajit.prewarm(model, [torch.randn(8, 64)], arch="sm_90")


def test_sharded_weights_are_refused(tmp_path):
    processes.run(_sharded, 1, "cpu", tmp_path)


def prewarmed(*arguments, status=0):
    """Standard output and error of the command."""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-m", "dorajit.prewarm", *arguments], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}, check=False)
    assert ran.returncode == status, ran.stderr
    return ran.stdout, ran.stderr


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The folder of a tiny Llama's config."""
    folder = tmp_path_factory.mktemp("llama")
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128}))
    return str(folder)


def test_list_is_what_the_program_reads(tiny, tmp_path):
    pytest.importorskip("bitsandbytes", exc_type=ImportError)
    problems, note = prewarmed("--model", tiny, "--targets", "q_proj, v_proj", "--tokens", "64", "--recipe", "nf4",
                               "--arch", "sm_90", "--list")
    assert "c64/" in problems and "are left out" in note
    (tmp_path / "problems").write_text(problems)
    read = program.run("prewarm", "--arch", "sm_90", "--from", str(tmp_path / "problems"), "--list")
    assert set(problems.split()) == set(read["problems"])


def test_gradients_of_a_gpu_are_recorded(tiny):
    problems, _ = prewarmed("--model", tiny, "--tokens", "64", "--recipe", "autocast", "--arch", "sm_90", "--list")
    assert "\ngated_silu_backward/" in problems  # its products in float32 exist on GPUs alone


@pytest.mark.parametrize("arguments, said", [
    (["--model", "gone/model"], "there is no gone/model; --model takes the folder"),
    (["--model", "no_such_module:make"], "there is no module no_such_module on PYTHONPATH"),
    (["--model", "test_prewarm:nothing"], "the module has no function of this name"),
    (["--model", "test_prewarm:Layer"], "has to return a torch.nn.Module, and the inputs"),
    (["--model", "test_prewarm:Layer", "--rank", "8"], "--rank would have no effect"),
    (["--model", "TINY", "--adapter", "x", "--rank", "8"], "--rank would have no effect"),
    (["--model", "TINY", "--tokens", "0"], "'0' is no number from 1"),
    (["--model", "TINY", "--image"], "--image would have no effect: the model takes text alone"),
    (["--model", "TINY", "--arch", "hopper"], "give sm_80"),
    (["--model", "TINY", "--arch", ""], "it names nothing"),
    (["--model", "TINY", "--adapter", "gone"], "--adapter gone: there is no adapter_config.json"),
    (["--model", "TINY", "--targets", "[unclosed"], "--targets [unclosed: unterminated character set"),
    (["--model", "TINY", "--alpha", "nan"], "'nan' is no finite number"),
    (["--model", "TINY", "--dropout", "-1"], "'-1' is not from 0 to below 1"),
    (["--model", ":x"], "--model :x: the module has no function"),
])
def test_wrong_command_lines_are_named(tiny, arguments, said):
    assert said in prewarmed(*(tiny if one == "TINY" else one for one in arguments), status=2)[1]


@pytest.mark.parametrize("config, said", [
    ('{"model_type": "unheard_of"}', "has no model_type unheard_of; install a version"),
    ('{"model_type": "llama", "architectures": ["LlamaTokenizer"]}', "has no model LlamaTokenizer; install a version"),
    ('{"model_type": ', "config.json: Expecting value"),
    ("[]", "config.json has no object"),
    ('{"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}', "Load the model in a function"),
    ('{"model_type": "llama", "quantization_config": {"load_in_4bit": true}}', "give --recipe nf4"),
    ('{"_class_name": "SD3Transformer2DModel", "num_layers": 1}', "SD3Transformer2DModel are not known here"),
])
def test_wrong_config_is_named(tmp_path, config, said):
    if "_class_name" in config:
        pytest.importorskip("diffusers")
    (tmp_path / "config.json").write_text(config)
    assert said in prewarmed("--model", str(tmp_path), status=2)[1]


_VISION = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 32,
           "patch_size": 16}
_TEXT = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 128}


@pytest.mark.parametrize("model, options, status, said", [
    ("llava", [], 0, "DoRA layers for images were not recorded, such as base_model.model.model.vision_tower"),
    ("llava", ["--image"], 2, "the inputs of LlavaForConditionalGeneration with an image are not known here"),
    ("siglip", [], 2, "does not take the inputs that it was given"),
])
def test_layers_that_no_call_reaches_are_named(tmp_path, model, options, status, said):
    configs = {"llava": {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "image_token_index": 5,
                         "vision_config": {"model_type": "clip_vision_model", **_VISION},
                         "text_config": {"model_type": "llama", **_TEXT}},
               "siglip": {"model_type": "siglip", "architectures": ["SiglipModel"], "text_config": _TEXT,
                          "vision_config": _VISION}}
    (tmp_path / "config.json").write_text(json.dumps(configs[model]))
    assert said in prewarmed("--model", str(tmp_path), "--tokens", "64", "--arch", "sm_90", "--list", *options,
                             status=status)[1]


def test_model_without_layers_of_dorajit_is_noted():
    assert "nothing was recorded" in prewarmed("--model", "test_prewarm:plain", "--arch", "sm_90", "--list")[1]
    with pytest.warns(RuntimeWarning, match="nothing was recorded"):
        dorajit.prewarm(*plain(), arch="sm_90", list_only=True)


def plain():
    return torch.nn.Linear(8, 8), [torch.randn(2, 8)]


def test_recording_does_not_speak_of_training():
    peft = pytest.importorskip("peft")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64)).bfloat16()
    config = peft.LoraConfig(r=4, target_modules=["0"], use_dora=True)
    model = peft.get_peft_model(model, config, autocast_adapter_dtype=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        dorajit.prewarm(model, [torch.randn(8, 64, dtype=torch.bfloat16)], arch="sm_90", list_only=True)
