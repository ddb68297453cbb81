"""The two implementations of a weight norm on the CPU: the kernel, and the factored form of docs/layers.md.

    python3 norms_on_cpu.py [--rounds 15] [--json FILE]

The Python package has to be on the path. Contenders are interleaved in random order; times are medians in
milliseconds. The machine must be idle.
"""

import argparse
import json
import random
import statistics
import time

import torch

from dorajit.norms import factored_norm, norm, norm_kernel

SHAPES = [(1024, 1024, 16), (1024, 1024, 64), (1024, 1024, 384), (2048, 2048, 64), (4096, 4096, 16),
          (4096, 4096, 64), (4096, 4096, 384)]
TYPES = {"f32": (torch.float32, torch.float32), "bf16": (torch.bfloat16, torch.bfloat16),
         "bf16, f32 factors": (torch.bfloat16, torch.float32)}
SCALE = 0.5


def contenders(out, columns, rank, weight_type, factor_type):
    weight = torch.randn(out, columns).to(weight_type)
    a, b = (torch.randn(shape).to(factor_type) for shape in ((rank, columns), (out, rank)))
    transposed = weight.T.contiguous().T

    def factored(matrix):
        return factored_norm.norms(matrix, a, b, SCALE, norm._MOST_BYTES_ON_CPU, torch.float32)
    return {"kernel": lambda: norm_kernel._launched(weight, a, b, SCALE, torch.float32, False),
            "factored": lambda: factored(weight), "factored, transposed": lambda: factored(transposed)}


def medians(calls, rounds):
    times = {name: [] for name in calls}
    for call in calls.values():
        call(), call()
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            start = time.perf_counter()
            calls[name]()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: round(statistics.median(found), 3) for name, found in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json")
    options = parser.parse_args()
    report = {"torch": torch.__version__, "threads": torch.get_num_threads(), "results": []}
    for shape in SHAPES:
        for name, types in TYPES.items():
            found = medians(contenders(*shape, *types), options.rounds)
            report["results"].append({"shape": shape, "types": name, "ms": found})
            print(f"{'x'.join(map(str, shape[:2]))} rank {shape[2]}, {name}: {found}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
