"""The first training step and the first generation of a process: unpatched, patched with an empty cache, prewarmed.

    python3 first_step.py [--model DIR] [--recipes bf16 autocast] [--tokens 4096] [--json FILE]

A Llama 3.1 8B with random weights and a DoRA adapter, checkpointed, or the model of transformers whose config.json is in
DIR. Each row is a fresh process with no shipped databases; "patched" begins with an empty cache folder, "prewarmed" with
the one that `python -m dorajit.prewarm` filled for the same recipe. Reported are the seconds of the first step and of a
later one, of the first generation and of a later one, and what dorajit compiled and tuned for them.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

# transformers searches for a package `kernels` and must not find the file of that name in this folder.
_HERE = pathlib.Path(__file__).resolve().parent
sys.path[:] = [str(_HERE.parent)] + [path for path in sys.path if pathlib.Path(path).resolve() != _HERE]

from benchmarks import report

LLAMA_8B = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}
ROWS = ["unpatched", "patched", "prewarmed"]
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def child(options):
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    import dorajit
    from dorajit import testing
    from dorajit.prewarm import models

    dtype, float32, autocast, _ = models.RECIPES[options.recipe]
    config = transformers.AutoConfig.from_pretrained(options.model, attn_implementation="sdpa")
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    model = get_peft_model(model, LoraConfig(use_dora=True, r=options.rank, lora_alpha=options.rank,
                                             target_modules=TARGETS), autocast_adapter_dtype=float32)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    if options.patched:
        dorajit.patch_peft(model, strict=True)
    tokens = torch.randint(config.vocab_size, (1, options.tokens), device="cuda")

    def step():
        with torch.autocast("cuda", autocast, enabled=autocast is not None):
            model(input_ids=tokens, labels=tokens).loss.backward()
        model.zero_grad(set_to_none=True)

    def generate():
        with torch.autocast("cuda", autocast, enabled=autocast is not None):
            model.generate(input_ids=tokens[:, :options.prompt], max_new_tokens=4, min_new_tokens=4, do_sample=False,
                           pad_token_id=0)

    def seconds(call):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    found = {}
    for name, call in (("step", step), ("generation", generate)):
        model.train(call is step)
        first = seconds(call)
        found |= {f"first_{name}_s": first, f"later_{name}_s": min(seconds(call) for _ in range(3))}
    counts = testing.statistics()
    found |= {name: counts[name] for name in ("compilations", "tuned_problems", "trials")}
    print(json.dumps(found | {"device": torch.cuda.get_device_name()}))


def run(options, recipe, is_patched, cache):
    command = [sys.executable, __file__, "--child", "--model", options.model, "--recipe", recipe,
               *(["--patched"] if is_patched else [])]
    for name in ("tokens", "prompt", "rank"):
        command += [f"--{name}", str(getattr(options, name))]
    return json.loads(subprocess.run(command, env=environment(cache), check=True, stdout=subprocess.PIPE,
                                     text=True).stdout.splitlines()[-1])


def environment(cache):
    return {**os.environ, "DORAJIT_CACHE_DIR": cache, "DORAJIT_DATABASES": "none"}


def prewarm(options, recipe, cache):
    """Its seconds."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "dorajit.prewarm", "--model", options.model, "--recipe", recipe, "--tokens",
                    f"{options.prompt},{options.tokens}", "--rank", str(options.rank), "--targets", ",".join(TARGETS),
                    "--checkpoint"], env=environment(cache), check=True)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="DIR", help="folder with a config.json; default: Llama 3.1 8B")
    parser.add_argument("--recipes", nargs="+", default=["bf16", "autocast"])
    parser.add_argument("--only", nargs="+", choices=ROWS, default=ROWS)
    for name, value in (("tokens", 4096), ("prompt", 512), ("rank", 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", metavar="FILE")
    for name in ("--child", "--patched"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--recipe", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if options.model is None:
            options.model = folder
            pathlib.Path(folder, "config.json").write_text(json.dumps(LLAMA_8B), encoding="utf-8")
        for recipe in options.recipes:
            for name in options.only:
                with tempfile.TemporaryDirectory() as cache:
                    taken = {"prewarm_s": prewarm(options, recipe, cache)} if name == "prewarmed" else {}
                    rows.append({"recipe": recipe, "model": name, **taken, **run(options, recipe, name != "unpatched", cache)})
                print(json.dumps(rows[-1]), flush=True)
    report.write(options.json, {"tokens": options.tokens, "prompt": options.prompt, "rank": options.rank}, rows)


if __name__ == "__main__":
    main()
