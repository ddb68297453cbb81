"""Trainers of other projects under DORAJIT_PATCH_PEFT, without a line about dorajit in their programs, plug-ins, and a
quick part of PEFT's own DoRA tests, with the patch; `./dev pytest --upstream` runs all of them."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest
from environments import run

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")


ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).parent / "upstream"))

import run as upstream_run


def needs(*packages):
    for name in packages:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


MODEL = """
import tempfile, torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

WORDS = "<pad> </s> <unk> red green blue one two three four".split()

def make_model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=1))

LORA = LoraConfig(use_dora=True, r=4, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
OPTIONS = dict(per_device_train_batch_size=2, report_to=[], use_cpu=True, bf16=False, logging_steps=1)

def magnitudes(model):
    return {name: one.detach().clone() for name, one in model.named_parameters()
            if "magnitude" in name and one.requires_grad}

def check(trainer, before):
    "All magnitudes have moved, and kernels served the layers, each as one node."
    import dorajit
    from dorajit import testing
    now = magnitudes(trainer.model)
    assert len(before) == 14 and not any(torch.equal(now[name], one) for name, one in before.items())
    found = dorajit.explain_dispatch(trainer.model)
    assert {one.path for one in found.values()} == {"node"}, found.summary()
    counts = testing.launch_counts()
    assert counts["magnitude_backward"] >= 14 and counts["weight_norm"] + counts["norm_assembly"] >= 14, counts
"""

TRL = """
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
import trl
from model import *

words = models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>")
split = Tokenizer(words)
split.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=split, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
text = ["red green blue", "one two three"] * 4
data = {"SFT": {"text": text}, "DPO": {"prompt": text, "chosen": [" one"] * 8, "rejected": [" two"] * 8},
        "GRPO": {"prompt": text}}
more = {"GRPO": dict(num_generations=2, max_completion_length=4, beta=0.1)}

def reward(completions, **_):
    return [float(len(one)) + number for number, one in enumerate(completions)]

for kind, columns in data.items():
    args = getattr(trl, kind + "Config")(output_dir=tempfile.mkdtemp(), max_steps=2, save_strategy="no", **OPTIONS,
                                         **more.get(kind, {}))
    trainer = getattr(trl, kind + "Trainer")(
        make_model(), train_dataset=Dataset.from_dict(columns), args=args, processing_class=tokenizer, peft_config=LORA,
        **({"reward_funcs": reward} if kind == "GRPO" else {}))
    before = magnitudes(trainer.model)
    trainer.train()
    check(trainer, before)
    print(kind, "trained")
"""

TRAINER = """
from transformers import Trainer, TrainingArguments
from model import *

data = [{"input_ids": torch.arange(number, number + 6) % 10, "labels": torch.arange(number, number + 6) % 10}
        for number in range(8)]

def train(folder, resume=None):
    model = get_peft_model(make_model(), LORA)
    before = magnitudes(model)
    trainer = Trainer(model, TrainingArguments(output_dir=folder, max_steps=4, save_steps=2, seed=3, **OPTIONS),
                      train_dataset=data)
    trainer.train(resume_from_checkpoint=resume)
    check(trainer, before)
    return {name: one for name, one in model.named_parameters() if one.requires_grad}

folder = tempfile.mkdtemp()
whole = train(folder)
resumed = train(tempfile.mkdtemp(), folder + "/checkpoint-2")
assert whole.keys() == resumed.keys() and all(torch.equal(one, resumed[name]) for name, one in whole.items())
print("the same after a checkpoint")
"""


LIGHTNING = """
import lightning
from model import *

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = get_peft_model(make_model(), LORA)

    def training_step(self, batch, _):
        return self.model(input_ids=batch, labels=batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW([one for one in self.parameters() if one.requires_grad], lr=1e-3)

module = Module()
before = magnitudes(module.model)
trainer = lightning.Trainer(max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(module, torch.utils.data.DataLoader(torch.arange(40).reshape(8, 5) % 10, batch_size=2))
check(module, before)
print("trained")
"""


def said(interpreter, tmp_path, program, **options):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "main.py").write_text(program)
    return run(interpreter, tmp_path / "main.py", folder=tmp_path, **options).stdout


def test_first_step_of_the_readme_runs_as_a_node(interpreter):
    text = (ROOT / "README.md").read_text()
    program = text[text.index("The first patched step"):].split("```python\n")[1].split("```")[0]
    found = run(interpreter, "-c", program, value=None).stdout
    assert found.startswith(program.rpartition("# ")[2].strip())


def test_trainers_of_trl_train_layers_as_nodes(interpreter, tmp_path):
    needs("trl", "datasets")
    assert [one for one in said(interpreter, tmp_path, TRL, HOME=str(tmp_path)).splitlines() if "trained" in one] == [
        "SFT trained", "DPO trained", "GRPO trained"]


def test_trainer_of_transformers_resumes_with_equal_bits(interpreter, tmp_path):
    needs("accelerate")
    assert "the same after a checkpoint" in said(interpreter, tmp_path, TRAINER)


def test_trainer_of_lightning_trains_layers_as_nodes(interpreter, tmp_path):
    needs("lightning")
    assert "trained" in said(interpreter, tmp_path, LIGHTNING)


UNSLOTH = """
import sys
import peft, torch, unsloth_zoo.compiler
from torch import nn
import dorajit
from dorajit.peft import patch

def rewrite():
    unsloth_zoo.compiler.patch_lora_forwards({"epilogue_fusion": True})

def results():
    torch.manual_seed(0)
    model = peft.get_peft_model(nn.Sequential(nn.Linear(32, 16)), peft.LoraConfig(use_dora=True, target_modules=["0"]))
    with torch.no_grad():
        model.base_model.model[0].lora_B["default"].weight.normal_()
    model(torch.ones(4, 32)).sum().backward()
    return model, [one.grad for one in model.parameters() if one.grad is not None]

rewrite()
if sys.argv[1] == "before":  # patched when Unsloth rewrote the layers
    assert len(patch._patches) == 1
else:
    assert not patch._patches
    dorajit.patch_peft(strict=True)
model, found = results()
found_paths = {one.path for one in dorajit.explain_dispatch(model).values()}
rewrite()  # for the next model, which changes nothing
assert results()[0].base_model.model[0].forward.__func__ is peft.tuners.lora.layer.Linear.forward
assert {one.path for one in dorajit.explain_dispatch(model).values()} == found_paths
patch._patches[0].undo()
assert peft.tuners.lora.layer.Linear.forward.__globals__["__name__"] == "Linear_peft_forward"
for one, other in zip(found, results()[1], strict=True):
    torch.testing.assert_close(one, other)
print(found_paths)
"""


@pytest.mark.parametrize("order", ["before", "after"])
def test_forward_rewritten_by_unsloth_is_replaced(interpreter, tmp_path, order):
    needs("unsloth_zoo")
    (tmp_path / "unsloth.py").touch()  # unsloth_zoo, which has the function, asks whether it is there
    (tmp_path / "main.py").write_text(UNSLOTH)
    done = run(interpreter, tmp_path / "main.py", order, folder=tmp_path, value="1" if order == "before" else None,
               HOME=str(tmp_path), UNSLOTH_IS_PRESENT="1", UNSLOTH_COMPILE_LOCATION=str(tmp_path / "compiled"))
    assert done.stdout.splitlines()[-1] == "{'node'}"


AXOLOTL = """
import os
import dorajit_autopatch
from axolotl.integrations.base import PluginManager, get_builtin_plugins
from axolotl.utils.config import prepare_plugins
from axolotl.utils.dict import DictDefault
from dorajit.peft import patch

assert "dorajit.peft.axolotl.Plugin" in get_builtin_plugins()

def prepared(value, **config):
    "The flags that were set, and the number of patches."
    os.environ["DORAJIT_PATCH_PEFT"] = value
    dorajit_autopatch._is_patched = False
    cfg = DictDefault(adapter="lora", **config)
    prepare_plugins(cfg)
    for _ in range(2):
        PluginManager.get_instance().pre_lora_load(cfg, None)
    made = len(patch._patches)
    for one in list(patch._patches):
        one.undo()
    return {name: one for name, one in cfg.items() if name.endswith("kernel")}, made

off = {f"lora_{name}_kernel": False for name in ("embedding", "mlp", "o", "qkv")}
assert prepared("", peft_use_dora=True) == (off, 1)
assert prepared("dropout=low_rank", peft_use_dora=True, lora_o_kernel=False) == (off, 1)
assert prepared("", peft_use_dora=True, lora_mlp_kernel=True) == ({"lora_mlp_kernel": True}, 1)
assert prepared("0", peft_use_dora=True) == ({}, 0)
assert prepared("") == ({}, 0)
print("prepared")
"""


def test_plugin_of_axolotl_patches_runs_with_dora(interpreter, tmp_path):
    needs("axolotl")
    project = (ROOT / "pyproject.toml").read_text()
    name, target = re.search(r'\[project.entry-points."axolotl.plugins"\]\n(\w+) = "(.+)"', project).groups()
    metadata = tmp_path / "dorajit-1.dist-info"  # as the wheel has it
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dorajit\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[axolotl.plugins]\n{name} = {target}\n")
    assert "prepared" in said(interpreter, tmp_path, AXOLOTL, value=None, HOME=str(tmp_path), AXOLOTL_DO_NOT_TRACK="1")


SWIFT = """
import subprocess, sys
import peft
from swift.utils import import_external_file
from dorajit.peft import patch
file = subprocess.run([sys.executable, "-m", "dorajit.swift"], capture_output=True, text=True, check=True).stdout.strip()
assert not patch._patches
for _ in range(2):
    import_external_file(file)
print(len(patch._patches))
"""


def test_plugin_file_of_ms_swift_patches_once(interpreter, tmp_path):
    needs("swift")
    (tmp_path / "main.py").write_text(SWIFT)
    assert run(interpreter, tmp_path / "main.py", value=None, HOME=str(tmp_path)).stdout.splitlines()[-1] == "1"


# --- PEFT's own tests ----------------------------------------------------------------------------

# Test modules that are collected quickly and run layers of all kinds.
QUICK = ["tests/test_lora_variants.py", "tests/test_helpers.py"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder for PEFT's distribution: that of `./dev` if it is set, else a temporary one."""
    given = os.environ.get("DORAJIT_UPSTREAM")
    return pathlib.Path(given) if given else tmp_path_factory.mktemp("upstream")


def upstream(folder, *arguments):
    done = subprocess.run([sys.executable, upstream_run.__file__, folder, *arguments],
                          capture_output=True, text=True, check=False)
    if done.returncode == upstream_run.NOT_TO_BE_HAD:
        pytest.skip(done.stderr.strip())
    return done


def test_upstream_tests_pass_with_kernels(folder):
    done = upstream(folder, *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    told = next(line for line in done.stdout.splitlines() if line.startswith("dorajit: "))
    ran, rest = told.removeprefix("dorajit: ").split(" tests ran DoRA layers: ")
    assert int(ran) > 0 and rest.startswith(f"{ran} by kernels"), told


def test_upstream_tests_fail_without_kernels(folder, monkeypatch):
    """Otherwise passing would prove nothing."""
    monkeypatch.setenv("PEFT_DORA_FUSED", "0")
    done = upstream(folder, QUICK[0], "-k", "dora_params_have_gradients")
    assert done.returncode == 1 and "no kernel was launched" in done.stdout


def test_unavailable_version_of_peft_raises(tmp_path):
    with pytest.raises(OSError, match="PEFT 0.0.0 cannot be fetched"):
        upstream_run.tests_of("0.0.0", tmp_path)
