"""A training step of a stack of Llama-shaped layers: LoRA, DoRA by PEFT, DoRA patched by dorajit.

    PYTHONPATH=build/release/bindings/python python3 layers.py [--device cuda] [--json FILE]
    ... layers.py --device cpu --width 64 --inner 96 --kv 32 --tokens 32 --rank 8 --layers 2

Seven projections per layer have adapters; attention is PyTorch's. The base is bf16, layers are
checkpointed. Adapters are bf16, and then float32 under bf16 autocast, as the Trainer of transformers
has them. All contenders have the same weights, a B that is not zero and magnitudes off the norms, and
take turns in random order. Reported are the median time of forward and backward, the peak of
PyTorch's allocator, and the cosine of the output with that of PEFT's DoRA computed in float32.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import time
import warnings

# transformers looks for a package `kernels`, which the file of that name here is not.
sys.path[:] = [path for path in sys.path if pathlib.Path(path) != pathlib.Path(__file__).parent]

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.checkpoint import checkpoint

import dorajit

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Layer(nn.Module):
    """Attention with fewer heads for keys and values, and a gated perceptron."""

    def __init__(self, options):
        super().__init__()
        width, inner, kv = options.width, options.inner, options.kv
        self.head = min(128, kv)
        self.q_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(width, kv, bias=False) for _ in range(2))
        self.gate_proj, self.up_proj = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, width, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))

    def heads(self, x):
        return x.unflatten(-1, (-1, self.head)).transpose(1, 2)

    def forward(self, x):
        given = self.norms[0](x)
        q, k, v = (self.heads(one(given)) for one in (self.q_proj, self.k_proj, self.v_proj))
        repeated = q.shape[1] // k.shape[1]
        k, v = (one.repeat_interleave(repeated, 1) for one in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(mixed.transpose(1, 2).flatten(2))
        given = self.norms[1](x)
        return x + self.down_proj(F.silu(self.gate_proj(given)) * self.up_proj(given))


class Stack(nn.Module):
    """The layers, each checkpointed while gradients are computed."""

    def __init__(self, options):
        super().__init__()
        self.layers = nn.ModuleList(Layer(options) for _ in range(options.layers))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if torch.is_grad_enabled() else layer(x)
        return x


def make(options, use_dora, float32_adapters, dtype=torch.bfloat16):
    torch.manual_seed(0)
    with torch.device(options.device):
        base = Stack(options).to(dtype)
    config = LoraConfig(use_dora=use_dora, r=options.rank, lora_alpha=options.rank // 2,
                        use_rslora=True, target_modules=list(PROJECTIONS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(base, config, autocast_adapter_dtype=float32_adapters)
    generator = torch.Generator(options.device).manual_seed(1)
    with torch.no_grad():
        for name, one in sorted(model.named_parameters()):
            if "lora_B" in name:
                one.copy_(torch.randn(one.shape, generator=generator, device=one.device) * 1e-3)
        for name, one in sorted(model.named_parameters()):
            if "magnitude" in name:
                spread = torch.randn(one.shape, generator=generator, device=one.device) * 1e-2
                one.mul_((1 + spread).to(one.dtype))
    return model


class Contender:
    """One way to do the step."""

    def __init__(self, name, options, use_dora, patched, float32_adapters):
        self.name, self.options, self.autocast = name, options, float32_adapters
        self.model = make(options, use_dora, float32_adapters)
        if patched:
            dorajit.patch_peft(self.model, strict=True)  # this one only, and for good
        self.times, self.peak = [], 0

    def settings(self):
        return torch.autocast(self.options.device, dtype=torch.bfloat16, enabled=self.autocast)

    def step(self, x):
        with self.settings():
            self.model(x).float().square().mean().backward()
        self.model.zero_grad(set_to_none=True)

    def output(self, x):
        with torch.no_grad(), self.settings():
            return self.model(x)


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def measure(contenders, x, options):
    for contender in contenders:
        for _ in range(options.warmup):
            contender.step(x)
    for _ in range(options.repeats):
        for contender in random.sample(contenders, len(contenders)):
            synchronize(options.device)
            start = time.perf_counter()
            contender.step(x)
            synchronize(options.device)
            contender.times.append(time.perf_counter() - start)
    if options.device == "cuda":
        for contender in contenders:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            contender.step(x)
            contender.peak = torch.cuda.max_memory_allocated() - before


def cosine(one, other):
    return F.cosine_similarity(one.double().flatten(), other.double().flatten(), dim=0).item()


def exact_output(contender, x, options):
    """PEFT's DoRA in float32, with the contender's parameters."""
    model = make(options, "dora" in contender.name.lower(), True, torch.float32)
    model.load_state_dict(contender.model.state_dict())
    with torch.no_grad():
        return model(x.float())


def report(contenders, x, options):
    rows = []
    for contender in contenders:
        found = contender.output(x)
        rows.append({"name": contender.name,
                     "milliseconds": 1e3 * statistics.median(contender.times),
                     "peak_megabytes": contender.peak / (1 << 20),
                     "cosine": cosine(found, exact_output(contender, x, options))})
        print(f"{contender.name:44} {rows[-1]['milliseconds']:9.2f} ms "
              f"{rows[-1]['peak_megabytes']:9.0f} MB   cosine {rows[-1]['cosine']:.8f}")
    return rows


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, value in (("width", 4096), ("inner", 12288), ("kv", 1024), ("tokens", 4096),
                        ("rank", 384), ("layers", 4), ("batch", 1), ("repeats", 10), ("warmup", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main():
    options = arguments()
    # name, DoRA, patched, float32 adapters under autocast
    contenders = [Contender(name, options, *how) for name, *how in (
        ("LoRA, PEFT", False, False, False),
        ("DoRA, PEFT", True, False, False),
        ("DoRA, dorajit", True, True, False),
        ("LoRA, PEFT, fp32 adapters, autocast", False, False, True),
        ("DoRA, PEFT, fp32 adapters, autocast", True, False, True),
        ("DoRA, dorajit, fp32 adapters, autocast", True, True, True))]
    torch.manual_seed(2)
    x = torch.randn(options.batch, options.tokens, options.width, device=options.device).bfloat16()
    measure(contenders, x, options)
    rows = report(contenders, x, options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"options": vars(options), "torch": torch.__version__,
                       "cpp_extension": dorajit.cpp_extension.module is not None, "rows": rows},
                      file, indent=1)


if __name__ == "__main__":
    main()
