"""A training step of a stack of Llama-shaped layers: LoRA, DoRA by PEFT, DoRA patched by dorajit.

    PYTHONPATH=build/release/bindings/python python3 layers.py [--device cuda] [--ranks 16 384] [--json FILE]
    ... layers.py --dropout 0.05 --quantized nf4 --no-autocast --contenders lora dora dorajit low_rank
    ... layers.py --device cpu --width 64 --inner 96 --kv 32 --tokens 32 --ranks 8 --layers 2
    ... layers.py --plain --width 64 --layers 8 --tokens 32 --ranks 8 --repeats 200 [--device cpu --base float32]

Seven projections per layer have adapters; attention is PyTorch's. With --plain a layer is one linear layer. The base is
bf16, NF4 with double quantisation by bitsandbytes, or float32. Layers are measured with checkpoints and without.
Adapters are bf16, and float32 under bf16 autocast, as in the Trainer of transformers; with --no-autocast float32
adapters run without it, and dorajit is measured with both types of low-rank products. Magnitudes have the type of the
adapters, except in the contender float32_magnitudes; "magnitudes" in a row tells. With a dropout, dorajit is measured with
both meanings of it. With --peer DIR the kernels of Axolotl are measured, too: DIR has the package `axolotl`, with
`axolotl.kernels` and what that imports. They drop the low-rank input alone, share a mask between the projections of one
input, and drop nothing before down_proj.

All contenders have the same weights, a B that is not zero and magnitudes that differ from the norms, and
are interleaved in random order. Reported for forward and backward: the median time; the median time until the host
has enqueued both ("CPU", from an idle GPU); the time in which kernels run ("GPU", where a kernel that starts before its
predecessor has ended counts once) and their number, from PyTorch's profiler; the peak of PyTorch's allocator. Also
reported: the median time of a forward pass without gradients in training mode, and the cosine of the output with that of PEFT in float32. Before each step the adapters count as changed, as by an
optimizer; a forward pass finds them as the step before it. With --compiled MODE both passes run under torch.compile.
"""

import argparse
import importlib.metadata
import json
import pathlib
import random
import statistics
import sys
import time

# transformers searches for a package `kernels` and must not find the file of that name in this folder.
_HERE = pathlib.Path(__file__).resolve().parent
sys.path[:] = [str(_HERE.parent)] + [path for path in sys.path if pathlib.Path(path).resolve() != _HERE]

import torch

import dorajit
from benchmarks.layer_contenders import IMPLEMENTATIONS, Contender, Setting

PROFILED = 5  # steps, because the times of one differ by up to 4%


def settings(options):
    if options.base == "float32":
        return [Setting(", fp32", torch.float32, torch.float32)]
    float32 = ((", fp32 adapters", torch.float32, False) if options.no_autocast
               else (", fp32 adapters, autocast", torch.float32, True))
    return [Setting(suffix, torch.bfloat16, *how) for suffix, *how in (("", torch.bfloat16, False), float32)
            if str(how[0]) == f"torch.{options.adapters}" or not options.adapters]


def contenders(rank, options):
    names = options.contenders or ["lora", "dora", "dorajit", *(["low_rank"] if options.dropout else []),
                                   *(["base_products"] if options.no_autocast else []),
                                   *(["open_lora", "open_dora"] if options.peer else [])]
    return [Contender(IMPLEMENTATIONS[name], setting, options, rank) for setting in settings(options) for name in names]


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


def busy_us(events):
    """Microseconds in which at least one of the kernels runs."""
    total, until = 0.0, float("-inf")
    for start, end in sorted((one.time_range.start, one.time_range.end) for one in events):
        total += max(end - max(start, until), 0)
        until = max(until, end)
    return total


def on_device(contender, x):
    """Of a step: its peak MB above the memory before it, and the median milliseconds in which kernels run and the number of
    kernels of some steps."""
    contender.prepare()
    contender.change_adapters()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    contender.step(x)
    peak = (torch.cuda.max_memory_allocated() - before) / (1 << 20)
    times = []
    for _ in range(PROFILED):
        contender.change_adapters()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            contender.step(x)
            torch.cuda.synchronize()
        found = [one for one in profile.events() if one.device_type == torch.autograd.DeviceType.CUDA]
        times.append(busy_us(found) / 1e3)
    return {"peak_megabytes": round(peak), "gpu_ms": round(statistics.median(times), 2), "kernels": len(found)}


def measure(measured, x, options):
    """Name -> what is reported."""
    steps, forwards = ({one.name: [] for one in measured} for _ in range(2))
    for repeat in range(options.warmup + options.repeats):
        for contender in random.sample(measured, len(measured)):
            contender.prepare()
            contender.change_adapters()
            step = timed(contender.step, x, options.device)
            forward = timed(contender.output, x, options.device)
            if repeat >= options.warmup:
                steps[contender.name].append(step)
                forwards[contender.name].append(forward)
    found = {}
    for contender in measured:
        cpu, wall = (round(1e3 * statistics.median(one), 3) for one in zip(*steps[contender.name]))
        _, forward = (round(1e3 * statistics.median(one), 3) for one in zip(*forwards[contender.name]))
        found[contender.name] = {"wall_ms": wall, "cpu_ms": cpu, "forward_ms": forward}
        if options.device == "cuda":
            found[contender.name] |= on_device(contender, x)
    return found


def rows_of(rank, x, options):
    measured = contenders(rank, options)
    cosines = {one.name: one.cosine(x) for one in measured}
    for is_checkpointed in (True, False):
        for one in measured:
            one.stack.is_checkpointed = is_checkpointed
        found = measure(measured, x, options)
        for one in measured:
            yield {**one.description(), "checkpointed": is_checkpointed, **found[one.name], "cosine": cosines[one.name]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, value in (("width", 4096), ("inner", 12288), ("kv", 1024), ("tokens", 4096),
                        ("layers", 4), ("batch", 1), ("repeats", 10), ("warmup", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 64, 384])
    parser.add_argument("--plain", action="store_true", help="a layer is one linear layer of width x width")
    parser.add_argument("--base", choices=("bfloat16", "float32"), default="bfloat16",
                        help="float32: the adapters have that type, too, and there is no autocast")
    parser.add_argument("--quantized", choices=("nf4",))
    parser.add_argument("--adapters", choices=("bfloat16", "float32"), help="only these; default: both")
    parser.add_argument("--no-autocast", action="store_true", help="float32 adapters without autocast")
    parser.add_argument("--dropout", type=float, default=0.0, metavar="P")
    parser.add_argument("--contenders", nargs="+", choices=IMPLEMENTATIONS)
    parser.add_argument("--peer", metavar="DIR", help="folder with the package axolotl")
    parser.add_argument("--compiled", metavar="MODE", help="of torch.compile: default, reduce-overhead")
    parser.add_argument("--package", default=dorajit.__version__, help="name of the package in the report")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.base == "float32" and options.quantized:
        parser.error("--quantized nf4 has a bf16 base; leave out --base float32")
    wants_open = any(name.startswith("open_") for name in options.contenders or [])
    if wants_open and not options.peer:
        parser.error("open_lora and open_dora need --peer DIR")
    if options.peer and options.device != "cuda":
        parser.error("--peer needs a GPU: the open kernels are in Triton")
    return options


def versions(options):
    found = {name: importlib.metadata.version(name)
             for name in ("torch", "peft", *(["bitsandbytes"] if options.quantized else []))}
    if "axolotl" in sys.modules:
        found["axolotl"] = sys.modules["axolotl"].__version__
    return found


def main():
    options = arguments()
    torch.manual_seed(2)
    x = torch.randn(options.batch, options.tokens, options.width, device=options.device)
    x = x.to(getattr(torch, options.base))
    rows = []
    for rank in options.ranks:
        for row in rows_of(rank, x, options):
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.json:
        shown = {name: value for name, value in vars(options).items() if name not in ("json", "peer")}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"options": shown, "device": torch.cuda.get_device_name() if options.device == "cuda" else "",
                       "versions": versions(options), "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
