"""Whether PEFT's DoRA layers of any type and size are ever slower under dorajit.patch_peft() than without it.

    PYTHONPATH=build/release/bindings/python python3 never_slower.py [--device cuda] [--layers conv] [--json FILE]

Each layer is measured unpatched, patched and unpatched again, in short blocks that alternate; the patch is installed
and undone between blocks, so that the unpatched layer runs PEFT's code and nothing else. A sample is as many calls as
take about a millisecond, and ends when the device has finished. The ratio is that of the fastest samples. The noise is
the ratio of the two unpatched contenders. A row over the limit is measured again with four times as many blocks. Exits
with 1 if a ratio exceeds --limit times the noise. On a loaded machine use --threads 1 --process-time.

train: forward and backward pass, with gradients of the input and the adapter. eval: forward pass without gradients.
f32: all tensors. bf16: all tensors. mixed: float32 adapters over a bf16 base, as get_peft_model makes them.
"""

import argparse
import pathlib
import statistics
import sys
import time
import warnings

# transformers searches for a package `kernels` and must not find the file of that name in this folder.
_HERE = pathlib.Path(__file__).resolve().parent
sys.path[:] = [str(_HERE.parent)] + [path for path in sys.path if pathlib.Path(path).resolve() != _HERE]

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers.pytorch_utils import Conv1D

import dorajit
from benchmarks import report

LIMIT = 1.05
TYPES = {"f32": (torch.float32, True), "bf16": (torch.bfloat16, False), "mixed": (torch.bfloat16, True)}


def linear(inputs, out, *rows, **options):
    return lambda: (nn.Linear(inputs, out, **options), torch.randn(*rows, inputs))


def conv1d_of_gpt2(inputs, out, *rows):
    return lambda: (Conv1D(out, inputs), torch.randn(*rows, inputs))


def embedding(rows, width, *tokens):
    return lambda: (nn.Embedding(rows, width), torch.randint(rows, tokens))


def conv(kind, inputs, out, kernel, *shape, **options):
    return lambda: (kind(inputs, out, kernel, **options), torch.randn(shape[0], inputs, *shape[1:]))


# name -> () -> (base layer, input)
LAYERS = {
    "linear 16x16, 8 rows": linear(16, 16, 8),
    "linear 64x64, 64 rows": linear(64, 64, 4, 16),
    "linear 256x1024, 64 rows": linear(1024, 256, 4, 16, bias=False),
    "linear 768x768, 512 rows": linear(768, 768, 4, 128),
    "linear 4096x4096, 1 row": linear(4096, 4096, 1, 1, bias=False),
    "linear 4096x4096, 256 rows": linear(4096, 4096, 1, 256, bias=False),
    "Conv1D 64x64, 64 rows": conv1d_of_gpt2(64, 64, 4, 16),
    "Conv1D 256x256, 64 rows": conv1d_of_gpt2(256, 256, 4, 16),
    "Conv1D 768x2304, 512 rows": conv1d_of_gpt2(768, 2304, 4, 128),
    "embedding 100x16, 8 tokens": embedding(100, 16, 8),
    "embedding 1000x64, 64 tokens": embedding(1000, 64, 4, 16),
    "embedding 50257x768, 64 tokens": embedding(50257, 768, 4, 16),
    "embedding 50257x768, 2048 tokens": embedding(50257, 768, 4, 512),
    "conv1d 8 channels, 32": conv(nn.Conv1d, 8, 8, 3, 2, 32),
    "conv1d 256 channels, 512": conv(nn.Conv1d, 256, 256, 3, 4, 512, padding=1),
    "conv2d 4 channels, 8x8": conv(nn.Conv2d, 4, 4, 3, 1, 8, 8),
    "conv2d 64 channels, 16x16": conv(nn.Conv2d, 64, 64, 3, 2, 16, 16, padding=1),
    "conv2d 64 channels, 1x1, 56x56": conv(nn.Conv2d, 64, 64, 1, 2, 56, 56),
    "conv2d 320 channels, 32x32": conv(nn.Conv2d, 320, 320, 3, 1, 32, 32, padding=1),
    "conv2d patches 16x16": conv(nn.Conv2d, 3, 768, 16, 2, 224, 224, stride=16),
    "conv3d 4 channels, 6x6x6": conv(nn.Conv3d, 4, 4, 3, 1, 6, 6, 6),
    "conv3d 32 channels, 16x16x16": conv(nn.Conv3d, 32, 32, 3, 1, 16, 16, 16, padding=1),
    "conv1d 8 channels, 4 groups": conv(nn.Conv1d, 8, 8, 3, 2, 32, groups=4),
    "conv2d 8 channels, 4 groups": conv(nn.Conv2d, 8, 8, 3, 1, 8, 8, groups=4),
    "conv2d 128 channels, 4 groups": conv(nn.Conv2d, 128, 128, 3, 2, 28, 28, padding=1, groups=4),
}
# name -> from the output to the gradient of the output
GRADIENTS = {
    "": torch.ones_like,
    "transposed": lambda out: torch.ones_like(out.mT, memory_format=torch.contiguous_format).mT,
    "expanded": lambda out: out.new_ones(()).expand(out.shape),
}
WITH_LOOSE_GRADIENTS = "linear 16x16, 8 rows", "linear 64x64, 64 rows", "linear 768x768, 512 rows"


def model_of(make, types, rank, device):
    """(a PEFT model of one layer, its input)"""
    torch.manual_seed(0)
    base, x = make()
    dtype, wide_adapters = TYPES[types]
    config = LoraConfig(use_dora=True, r=rank, lora_alpha=rank, target_modules=["0"], init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(nn.Sequential(base).to(device, dtype), config, autocast_adapter_dtype=wide_adapters)
    x = x.to(device)
    return model.base_model.model, x.to(dtype).requires_grad_() if x.is_floating_point() else x


def step_of(model, x, gradient):
    """A training step, or without a gradient a forward pass in evaluation."""
    if gradient is None:
        model.eval()
        return torch.no_grad()(lambda: model(x))
    trained = [one for one in (x, *model.parameters()) if one.requires_grad]
    with torch.no_grad():
        d_out = gradient(model(x))
    def step():
        torch.autograd.backward(model(x), d_out)
        for one in trained:
            one.grad = None
    return step


def seconds(step, calls, options):
    """Seconds per call."""
    start = options.clock()
    for _ in range(calls):
        step()
    if options.device == "cuda":
        torch.cuda.synchronize()
    return (options.clock() - start) / calls


def measure(step, blocks, options):
    """(the time without the patch, with the patch, without it again): the fastest samples of alternating blocks."""
    times = [], [], []
    for block in range(-1, blocks):  # the first one compiles and tunes
        for contender in (0, 1, 2) if block % 2 else (2, 1, 0):
            patch = dorajit.patch_peft() if contender == 1 else None
            for _ in range(3):
                once = seconds(step, 1, options)
            calls = max(1, round(1e-3 / once))
            end = time.perf_counter() + options.block_seconds
            samples = []
            while len(samples) < 2 or time.perf_counter() < end:
                samples.append(seconds(step, calls, options))
            times[contender].extend(samples if block >= 0 else ())
            if patch is not None:
                patch.undo()
    return [min(one) for one in times]


def rows_of(options):
    for name, make in LAYERS.items():
        if not any(one in name for one in options.layers):
            continue
        for types in options.types:
            for rank in options.ranks:
                for mode in options.modes:
                    gradients = (None,) if mode == "eval" else (
                        GRADIENTS if name in WITH_LOOSE_GRADIENTS else ("",))
                    for gradient in gradients:
                        yield name, make, types, rank, mode, gradient


def main():
    options = arguments()
    options.clock = time.process_time if options.process_time else time.perf_counter
    if options.threads:
        torch.set_num_threads(options.threads)
    results, over = [], 0
    print(f"{'layer':<34} types rank {'pass':<16} {'PEFT ms':>9} {'dorajit':>9} {'ratio':>6} {'noise':>6}")
    for name, make, types, rank, mode, gradient in rows_of(options):
        model, x = model_of(make, types, rank, options.device)
        step = step_of(model, x, None if gradient is None else GRADIENTS[gradient])
        for blocks in (options.blocks, 4 * options.blocks):
            first, patched, second = measure(step, blocks, options)
            unpatched, noise = min(first, second), max(first, second) / min(first, second)
            ratio = patched / unpatched
            if ratio <= options.limit * noise:
                break
        is_over = ratio > options.limit * noise
        over += is_over
        mode = f"{mode} {gradient}" if gradient else mode
        print(f"{name:<34} {types:>5} {rank:>4} {mode:<16} {1e3 * unpatched:>9.3f} {1e3 * patched:>9.3f} {ratio:>6.2f} "
              f"{noise:>6.2f}{'  over' if is_over else ''}", flush=True)
        results.append({"layer": name, "types": types, "rank": rank, "pass": mode, "unpatched_ms": 1e3 * unpatched,
                        "patched_ms": 1e3 * patched, "ratio": ratio, "noise": noise})
    print(f"{over} of {len(results)} over {options.limit} times the noise; median "
          f"{statistics.median(one['ratio'] for one in results):.2f}")
    report.write(options.json, {"device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
                                "torch": torch.__version__, "threads": torch.get_num_threads()}, results)
    return over > 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", nargs="+", default=[""], help="parts of names of layers")
    parser.add_argument("--types", nargs="+", default=list(TYPES), choices=TYPES)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--modes", nargs="+", default=["train", "eval"], choices=["train", "eval"])
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--block-seconds", type=float, default=0.05)
    parser.add_argument("--threads", type=int, help="of PyTorch")
    parser.add_argument("--process-time", action="store_true", help="the CPU time of all threads, for a loaded machine")
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
