"""Forward and backward passes of whole models in the paper's protocol: LoRA, DoRA by PEFT, DoRA patched by dorajit.

    PYTHONPATH=build/release/bindings/python python3 models.py [--models qwen3_8b mistral_small_24b] [--json FILE]
    ... models.py --device cpu --models tiny --tokens 64 --loss-tokens 16 --micro-steps 1 --repeats 2

As in arXiv:2603.22276 (sections 5.1 and 5.2, tables 4, 5 and 8): bf16 with bf16 adapters of rank 384 on every projection
of the decoder layers, checkpointed layers, one sequence of 4096 tokens whose last 1024 have a loss, eight sequences to an
iteration, no optimizer. The models are transformers' classes with the sizes of the published configs and random weights,
because neither time nor memory depends on the values. Contenders run one after the other, each in a process of its own, so
that the peak of PyTorch's allocator is that of one model; the order is repeated with --rounds. Reported: the median time of
an iteration and of a forward pass without gradients, and the peak.
"""

import argparse
import importlib.metadata
import json
import pathlib
import statistics
import subprocess
import sys
import time

# transformers searches for a package `kernels` and must not find the file of that name in this folder.
_HERE = pathlib.Path(__file__).resolve().parent
sys.path[:] = [str(_HERE.parent)] + [path for path in sys.path if pathlib.Path(path).resolve() != _HERE]

from benchmarks import report

CONTENDERS = {"lora": "LoRA, PEFT", "dora": "DoRA, PEFT", "dorajit": "DoRA, dorajit"}
# Class and config of the language model; those of Qwen3-8B and of Mistral-Small-24B as published.
MODELS = {
    "qwen3_8b": ("Qwen3", {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
                           "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936}),
    "mistral_small_24b": ("Mistral", {"hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
                                      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
                                      "vocab_size": 131072}),
    "tiny": ("Qwen3", {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
                       "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512}),
}


def make_model(options, use_dora):
    """PEFT's model on the device, with a B that is not zero."""
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    family, sizes = MODELS[options.model]
    config = getattr(transformers, f"{family}Config")(**sizes, attn_implementation="sdpa", use_cache=False)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(options.device):
        model = getattr(transformers, f"{family}ForCausalLM")(config)
    torch.set_default_dtype(torch.float32)
    model = get_peft_model(model, LoraConfig(
        use_dora=use_dora, r=options.rank, lora_alpha=options.rank // 2, use_rslora=True, lora_dropout=0.0,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
        autocast_adapter_dtype=False)
    for name, one in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(one, std=1e-3)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    return model.train()


def run_contender(options):
    """What a process of one contender prints as JSON."""
    import torch

    synchronize = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    model = make_model(options, options.contender != "lora")
    nodes = None
    if options.contender == "dorajit":
        import dorajit
        dorajit.patch_peft(model, strict=True)
        nodes = str(dorajit.explain_dispatch(model))
    tokens = torch.randint(MODELS[options.model][1]["vocab_size"], (1, options.tokens), device=options.device)
    labels = tokens[:, -options.loss_tokens:].flatten()

    def step():
        logits = model(input_ids=tokens, logits_to_keep=options.loss_tokens).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels).backward()

    def iteration():
        for _ in range(options.micro_steps):
            step()
        model.zero_grad(set_to_none=True)

    @torch.no_grad()
    def forward():
        model(input_ids=tokens, logits_to_keep=options.loss_tokens)

    def seconds(call):
        for _ in range(options.warmup):
            call()
        taken = []
        for _ in range(options.repeats):
            # To caches of norms the adapters change before each iteration, as by an optimizer.
            torch.autograd.graph.increment_version([one for one in model.parameters() if one.requires_grad])
            synchronize()
            start = time.perf_counter()
            call()
            synchronize()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken)

    found = {"iteration_s": seconds(iteration), "forward_s": seconds(forward)}
    if options.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        iteration()
        found |= {"peak_gb": torch.cuda.max_memory_allocated() / 1e9, "weights_gb": before / 1e9}
    return found | {"device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu", "nodes": nodes}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["qwen3_8b"])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    for name, value in (("rank", 384), ("tokens", 4096), ("loss-tokens", 1024), ("micro-steps", 8), ("repeats", 5),
                        ("warmup", 1), ("rounds", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--model", choices=MODELS, help=argparse.SUPPRESS)  # the two of a contender's process
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    if options.contender:
        print(json.dumps(run_contender(options)))
        return
    rows = []
    for model in options.models:
        for _ in range(options.rounds):
            for contender in options.contenders:
                command = [sys.executable, *sys.argv, "--model", model, "--contender", contender]
                ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
                if ended.returncode:
                    print(f"{model}, {contender}: ended with {ended.returncode}", flush=True)
                    continue
                row = {"model": model, "contender": CONTENDERS[contender],
                       **json.loads(ended.stdout.splitlines()[-1])}
                rows.append(row)
                print(json.dumps({name: value for name, value in row.items() if name != "nodes"}), flush=True)
    conditions = {name: value for name, value in vars(options).items() if name not in ("json", "model", "contender")}
    conditions |= {name: importlib.metadata.version(name) for name in ("torch", "peft", "transformers")}
    report.write(options.json, conditions, rows)


if __name__ == "__main__":
    main()
