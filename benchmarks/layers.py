"""A training step of a stack of Llama-shaped layers: LoRA, DoRA by PEFT, DoRA patched by dorajit.

    PYTHONPATH=build/release/bindings/python python3 layers.py [--device cuda] [--ranks 16 384] [--json FILE]
    ... layers.py --device cpu --width 64 --inner 96 --kv 32 --tokens 32 --ranks 8 --layers 2

Seven projections per layer have adapters; attention is PyTorch's. The base is bf16. Layers are measured with
checkpoints and without. Adapters are bf16, or float32 under bf16 autocast, as in the Trainer of transformers.
All contenders have the same weights, a B that is not zero and magnitudes that differ from the norms, and
are interleaved in random order. Reported for forward and backward: the median time; the median time until the host
has enqueued both ("CPU", from an idle GPU); the sum and the number of kernels, from PyTorch's profiler; the peak
of PyTorch's allocator. Also reported: the median time of a forward pass without gradients, and the cosine of the
output with that of PEFT's DoRA computed in float32. With --compiled MODE both passes run under torch.compile.

dorajit's layers have their node in C++ if the extension was compiled (python -m dorajit.cpp_extension), and in Python
with --in-python; "cpp_extension" in the JSON file tells which. To compare the two, alternate runs on one machine.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import time
import warnings

# transformers searches for a package `kernels` and must not find the file of that name here.
sys.path[:] = [path for path in sys.path if pathlib.Path(path) != pathlib.Path(__file__).parent]

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.checkpoint import checkpoint

import dorajit

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Layer(nn.Module):
    """Grouped-query attention and a gated MLP."""

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
    """The layers; each is checkpointed while gradients are computed, by default."""

    def __init__(self, options):
        super().__init__()
        self.is_checkpointed = True
        self.layers = nn.ModuleList(Layer(options) for _ in range(options.layers))

    def forward(self, x):
        is_checkpointed = self.is_checkpointed and torch.is_grad_enabled()
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if is_checkpointed else layer(x)
        return x


def make(options, rank, use_dora, float32_adapters, dtype=torch.bfloat16):
    torch.manual_seed(0)
    with torch.device(options.device):
        base = Stack(options).to(dtype)
    config = LoraConfig(use_dora=use_dora, r=rank, lora_alpha=max(rank // 2, 1),
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
    """One implementation of the step."""

    def __init__(self, name, options, rank, use_dora, patched, float32_adapters, saves_outputs=False):
        self.name, self.device, self.autocast = name, options.device, float32_adapters
        self.saves_outputs = saves_outputs
        self.model = make(options, rank, use_dora, float32_adapters)
        self.stack = self.model.base_model.model
        if patched:
            dorajit.patch_peft(self.model, strict=True)  # only this model, and never undone
        self.run = torch.compile(self.model, mode=options.compiled) if options.compiled else self.model
        # Contenders share code objects, but each must compile its own graphs.
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1024

    def settings(self):
        return torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.autocast)

    def step(self, x):
        dorajit.set_save_outputs(self.saves_outputs)
        with self.settings():
            self.run(x).float().square().mean().backward()
        self.model.zero_grad(set_to_none=True)

    def output(self, x):
        with torch.no_grad(), self.settings():
            return self.run(x)


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def timed(function, x, device):
    """Seconds until the host has enqueued everything, and until the device has finished."""
    synchronize(device)
    start = time.perf_counter()
    function(x)
    enqueued = time.perf_counter() - start
    synchronize(device)
    return enqueued, time.perf_counter() - start


def on_device(contender, x):
    """(peak MB of a step above the memory before it, milliseconds of kernels, number of kernels)."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    contender.step(x)
    peak = (torch.cuda.max_memory_allocated() - before) / (1 << 20)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        contender.step(x)
        torch.cuda.synchronize()
    found = [one for one in profile.events() if one.device_type == torch.autograd.DeviceType.CUDA]
    return {"peak_megabytes": round(peak), "gpu_ms": round(sum(one.device_time_total for one in found) / 1e3, 2),
            "kernels": len(found)}


def measure(contenders, x, options):
    """Name -> what is reported."""
    steps, forwards = ({one.name: [] for one in contenders} for _ in range(2))
    for contender in contenders:
        for _ in range(options.warmup):
            contender.step(x)
            contender.output(x)
    for _ in range(options.repeats):
        for contender in random.sample(contenders, len(contenders)):
            steps[contender.name].append(timed(contender.step, x, options.device))
            forwards[contender.name].append(timed(contender.output, x, options.device))
    found = {}
    for contender in contenders:
        cpu, wall = (round(1e3 * statistics.median(one), 2) for one in zip(*steps[contender.name]))
        _, forward = (round(1e3 * statistics.median(one), 2) for one in zip(*forwards[contender.name]))
        found[contender.name] = {"wall_ms": wall, "cpu_ms": cpu, "forward_ms": forward}
        if options.device == "cuda":
            found[contender.name] |= on_device(contender, x)
    return found


def cosine(one, other):
    return F.cosine_similarity(one.double().flatten(), other.double().flatten(), dim=0).item()


def exact_output(contender, x, options, rank):
    """PEFT's DoRA in float32, with the contender's parameters."""
    model = make(options, rank, "dora" in contender.name.lower(), True, torch.float32)
    model.load_state_dict(contender.model.state_dict())
    with torch.no_grad():
        return model(x.float())


def rows_of(rank, x, options):
    # name, DoRA, patched, float32 adapters under autocast
    contenders = [Contender(name, options, rank, *how) for name, *how in (
        ("LoRA, PEFT", False, False, False),
        ("DoRA, PEFT", True, False, False),
        ("DoRA, dorajit", True, True, False),
        ("LoRA, PEFT, fp32 adapters, autocast", False, False, True),
        ("DoRA, PEFT, fp32 adapters, autocast", True, False, True),
        ("DoRA, dorajit, fp32 adapters, autocast", True, True, True),
        *((("DoRA, dorajit, saved outputs", True, True, False, True),
           ("DoRA, dorajit, saved outputs, fp32 adapters, autocast", True, True, True, True))
          if options.save_outputs else ()))]
    cosines = {one.name: cosine(one.output(x), exact_output(one, x, options, rank)) for one in contenders}
    for is_checkpointed in (True, False):
        for one in contenders:
            one.stack.is_checkpointed = is_checkpointed
        for name, found in measure(contenders, x, options).items():
            yield {"rank": rank, "checkpointed": is_checkpointed, "name": name, **found, "cosine": cosines[name]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, value in (("width", 4096), ("inner", 12288), ("kv", 1024), ("tokens", 4096),
                        ("layers", 4), ("batch", 1), ("repeats", 10), ("warmup", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 64, 384])
    parser.add_argument("--compiled", metavar="MODE", help="of torch.compile: default, reduce-overhead")
    parser.add_argument("--in-python", action="store_true", help="without the C++ extension")
    parser.add_argument("--save-outputs", action="store_true", help="dorajit also with set_save_outputs")
    parser.add_argument("--package", default=dorajit.__version__, help="name of the package in the report")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main():
    options = arguments()
    if options.in_python:
        dorajit.cpp_extension.module = None
    torch.manual_seed(2)
    x = torch.randn(options.batch, options.tokens, options.width, device=options.device).bfloat16()
    rows = []
    for rank in options.ranks:
        for row in rows_of(rank, x, options):
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"options": vars(options), "device": torch.cuda.get_device_name() if options.device == "cuda" else "",
                       "torch": torch.__version__,
                       "cpp_extension": dorajit.cpp_extension.module is not None, "rows": rows},
                      file, indent=1)


if __name__ == "__main__":
    main()
