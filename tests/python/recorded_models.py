"""A server of recordings and real runs of models, each in a forked process with an engine of its own: it reads
[model, recipe, options] as a line of JSON and writes {"recorded": problems, "run": problems, "made": counters of what was
compiled and tuned for the run}, or {"error": text}.

The recording has the model's config alone, as `python -m dorajit.prewarm` has it; the real run has weights, and of a
config of true size two layers of each kind.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback

import model_configs
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import BitsAndBytesConfig

import dorajit
from dorajit import _native
from dorajit.operations import recording
from dorajit.prewarm import models, passes

RANK = 8


def _folder(config):
    folder = tempfile.mkdtemp(dir=os.environ["DORAJIT_CACHE_DIR"])
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    return folder


def _tokens(model):
    """Tokens of a sequence: 16, and those of an image that always has as many."""
    return 16 + (getattr(model.config, "mm_tokens_per_image", None) or 8)


def _adapter(targets, options):
    return {"r": RANK, "lora_alpha": 16, "lora_dropout": options.get("dropout", 0.0), "target_modules": targets}


def _target(device):
    return recording.Target(device, torch.cuda.get_device_capability() if device == "cuda" else (0, 0))


def _recorded(folder, recipe, targets, image, options):
    dtype, float32, autocast, has_4_bits = models.RECIPES[recipe]
    model = models.build(folder, dtype)
    if has_4_bits:
        models.quantize(model)
    adapted = models.adapt(model, float32, **_adapter(targets, options))
    if options.get("checkpoint"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = models.inputs_of(model, _tokens(model), 1, image, dtype)
    with recording.record(_target(options["device"])) as problems:
        passes.run(adapted, [inputs], True, True, autocast)
    return sorted(problems)


def _quantize(model, device):
    """What diffusers' from_pretrained does with BitsAndBytesConfig, which asks for a GPU."""
    import bitsandbytes
    for owner in list(model.modules()):
        for name, layer in list(owner.named_children()):
            if type(layer) is torch.nn.Linear:
                made = bitsandbytes.nn.Linear4bit(layer.in_features, layer.out_features, layer.bias is not None,
                                                  torch.bfloat16, quant_type="nf4", device="meta")
                made.weight = bitsandbytes.nn.Params4bit(layer.weight.detach(), requires_grad=False, quant_type="nf4",
                                                         compress_statistics=True)
                made.bias = layer.bias
                made.support_avx512bf16_for_cpu = False  # its layout takes no narrow layers
                owner._modules[name] = made.to(device)
    model.is_loaded_in_4bit = True


def _real(folder, recipe, targets, image, options):
    dtype, float32, autocast, has_4_bits = models.RECIPES[recipe]
    device = options["device"]
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    if "_class_name" in config:
        import diffusers
        with torch.device(device):
            model = getattr(diffusers, config["_class_name"]).from_config(config).to(dtype)
        if has_4_bits:
            _quantize(model, device)
    else:
        kind = getattr(transformers, config["architectures"][0])
        with torch.device(device):
            model = kind._from_config(transformers.AutoConfig.for_model(**config), dtype=dtype)
    if has_4_bits and "_class_name" not in config:
        model.save_pretrained(folder)
        model = kind.from_pretrained(folder, device_map=device, dtype=dtype, quantization_config=BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16))
    torch.nn.Module.to(model, device)  # transformers' own refuses 4 bits
    adapted = get_peft_model(model, LoraConfig(use_dora=True, **_adapter(targets, options)),
                             autocast_adapter_dtype=float32)
    if options.get("checkpoint"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = torch.utils._pytree.tree_map(
        lambda one: torch.zeros_like(one, device=device) if one.is_meta else one.to(device),
        models.inputs_of(model, _tokens(model), 1, image, dtype))
    dorajit.patch_peft(adapted)
    with torch.autocast(device, autocast, enabled=autocast is not None):
        adapted.train()
        found = adapted(**inputs)
        (found.logits if hasattr(found, "logits") else found[0]).float().square().mean().backward()
        adapted.eval()
        with torch.no_grad():
            passed = adapted(**inputs)
            if getattr(passed, "past_key_values", None) is not None and hasattr(model, "generate"):
                adapted.generate(**inputs, max_new_tokens=2, min_new_tokens=2, do_sample=False)
    return sorted({one["problem"] for one in _native.statistics()["plans"]})


def _answer(model, recipe, options):
    config = (model_configs.TRUE if options.get("true") else model_configs.TINY)[model]
    small = model_configs.shallow(config) if options.get("true") else config
    more = (recipe, model_configs.targets(model), model_configs.has_image(model), options)
    with dorajit.control.state.switches["joins_mlp"].override(options.get("mlp", True)):
        answer = {"recorded": _recorded(_folder(config), *more), "run": _real(_folder(small), *more)}
    counts = _native.statistics()
    return {**answer, "made": {name: counts[name] for name in ("compilations", "builtin_kernels", "trials")}}


def _answer_text(line):
    try:
        return json.dumps(_answer(*json.loads(line)))
    except BaseException:
        return json.dumps({"error": traceback.format_exc()})


def _forked(line):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with open(writing, "w", encoding="utf-8") as out:
            out.write(_answer_text(line))
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as made:
        text = made.read()
    os.waitpid(child, 0)
    return text


def _started(line):
    """CUDA does not work in a process forked from one that has asked for devices, as bitsandbytes does when imported."""
    return subprocess.run([sys.executable, "-W", "ignore", __file__, line], stdout=subprocess.PIPE, text=True,
                          check=False).stdout


def _serve():
    answers = open(os.dup(1), "w", encoding="utf-8")  # libraries print to descriptor 1
    os.dup2(2, 1)
    for line in sys.argv[1:]:
        print(_answer_text(line), file=answers, flush=True)
    for line in sys.stdin if len(sys.argv) == 1 else ():
        is_on_cpu = json.loads(line)[2]["device"] == "cpu"
        print((_forked if is_on_cpu else _started)(line).strip() or '{"error": "the process ended"}', file=answers, flush=True)


if __name__ == "__main__":
    _serve()
