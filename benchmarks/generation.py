"""Generation with unmerged adapters by transformers: LoRA, DoRA by PEFT, DoRA patched by dorajit.

    python3 generation.py [--rank 16] [--batches 1 8] [--json FILE]

A Llama with a few layers of full width, bf16, greedy decoding. Contenders are interleaved. Reported are the median
milliseconds per token and the GPU's part of them, both also inside PEFT's DoraCaching, and how many of the tokens
equal those of PEFT's DoRA.
"""

import argparse
import contextlib
import json
import pathlib
import random
import statistics
import sys
import time
import warnings

# transformers searches for a package `kernels` and must not find the file of that name in this folder.
_HERE = pathlib.Path(__file__).resolve().parent
sys.path[:] = [str(_HERE.parent)] + [path for path in sys.path if pathlib.Path(path).resolve() != _HERE]

import torch
from peft import LoraConfig, get_peft_model
from peft.helpers import DoraCaching
from transformers import LlamaConfig, LlamaForCausalLM

import dorajit
from benchmarks import report

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def make(options, use_dora):
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=4096, intermediate_size=12288, num_hidden_layers=options.layers,
                         num_attention_heads=32, num_key_value_heads=8, vocab_size=32000)
    with torch.device("cuda"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(LlamaForCausalLM(config).bfloat16(), LoraConfig(
            use_dora=use_dora, r=options.rank, lora_alpha=2 * options.rank, target_modules=list(PROJECTIONS)))
    with torch.no_grad():
        for name, one in sorted(model.named_parameters()):
            if "lora_B" in name:
                one.normal_(std=1e-2)
    return model.eval()


def generate(model, prompt, tokens):
    return model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens,
                          min_new_tokens=tokens, do_sample=False, pad_token_id=0)


def milliseconds(run, tokens):
    """A token."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / tokens * 1e3


def gpu_milliseconds(run, tokens):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    return sum(one.device_time_total for one in profile.events()
               if one.device_type == torch.autograd.DeviceType.CUDA) / 1e3 / tokens


def rows_of(models, batch, options):
    prompt = torch.randint(0, 32000, (batch, 128), device="cuda")
    def runner(model, caching):
        def run():
            with DoraCaching() if caching else contextlib.nullcontext():
                return generate(model, prompt, options.tokens)
        return run
    runs = {(name, caching): runner(model, caching) for name, model in models.items()
            for caching in ((False,) if "LoRA" in name else (False, True))}
    for run in runs.values():
        run()
    found = {key: run() for key, run in runs.items()}
    times = {key: [] for key in runs}
    for _ in range(options.repeats):
        for key in random.sample(list(runs), len(runs)):
            times[key].append(milliseconds(runs[key], options.tokens))
    expected = found["DoRA, PEFT", False]
    for (name, caching), run in runs.items():
        same = None if "LoRA" in name else round((found[name, caching] == expected).float().mean().item(), 4)
        yield {"batch": batch, "name": name, "caching": caching,
               "ms_a_token": round(statistics.median(times[name, caching]), 2),
               "gpu_ms_a_token": round(gpu_milliseconds(run, options.tokens), 2), "share_of_same_tokens": same}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("rank", 16), ("layers", 4), ("tokens", 48), ("repeats", 7)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--package", default=dorajit.__version__, help="name of the package in the report")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    models = {"LoRA, PEFT": make(options, False), "DoRA, PEFT": make(options, True),
              "DoRA, dorajit": make(options, True)}
    dorajit.patch_peft(models["DoRA, dorajit"], strict=True)
    rows = []
    with torch.no_grad():
        for batch in options.batches:
            for row in rows_of(models, batch, options):
                rows.append(row)
                print(json.dumps(row), flush=True)
    report.write(options.json, {"options": vars(options), "device": torch.cuda.get_device_name(),
                                "torch": torch.__version__}, rows)


if __name__ == "__main__":
    main()
