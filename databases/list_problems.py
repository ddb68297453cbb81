#!/usr/bin/env python3
"""Prints the problems whose winners ship, one a line, for `dorajit tune --from FILE`.

Every op that `dorajit prewarm --list` knows, in each of its forms, at the 20 shapes that
benchmarks/kernels.py compares and at those of `dorajit demo` (the projections of three models at 1, 512
and 4096 tokens), in bf16, f16, f32, and bf16 with a gain in f32. Then what the layers of a model launch
for their weights and low-rank products, in bf16, with adapters in bf16 or f32. Needs `dorajit` on the PATH.

    python3 list_problems.py [layers]

With `layers` the last alone.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

BENCHMARK_SHAPES = [(1, 4096), (512, 4096), (2048, 4096), (4096, 4096), (2048, 8192), (8192, 8192),
                    (16384, 8192), (32768, 8192), (1, 512), (512, 512), (2048, 512), (8192, 512),
                    (2048, 1024), (2048, 2048), (2048, 3072), (2048, 6144), (2048, 12288),
                    (2048, 16384), (2048, 28672), (8192, 28672)]
DEMO_SHAPES = [(rows, cols) for rows in (1, 512, 4096)
               for cols in (1024, 4096, 5120, 12288, 14336, 32768)]
# Options of types: bf16 and f32 with a gain of their own type and, as layers compute it, one in f32.
TYPES = [["--type", "bf16"], ["--type", "f16", "--gain-type", "f16"], ["--type", "f32"]]
# Llama 3.1 8B.
MODEL = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
         "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "torch_dtype": "bfloat16"}
OF_LAYERS = ["--rank", "16,64", "--tokens", "1,4096", "--op", "weight_norm,compose_low_rank,magnitude_backward"]
# The gain and its divisor; a gain in f32 and no bias; one type of activations.
LAUNCHED = re.compile(r"weight_norm/\S*,-,-,f32,f32/|compose_low_rank/bf16,bf16,bf16,f32,-,|"
                      r"magnitude_backward/bf16,bf16,f32,f32,-,")


def listed(cache, *options):
    found = subprocess.run(["dorajit", "prewarm", "--list", "--arch", "sm_90", "--cache-dir", cache, *options],
                           stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.splitlines()


def main():
    shapes = ",".join(f"{rows}x{cols}" for rows, cols in BENCHMARK_SHAPES + DEMO_SHAPES)
    problems = {}  # as an ordered set
    with tempfile.TemporaryDirectory() as cache:
        for types in TYPES if sys.argv[1:] != ["layers"] else ():
            problems.update(dict.fromkeys(listed(cache, "--shape", shapes, *types)))
        pathlib.Path(cache, "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        problems.update(dict.fromkeys(filter(LAUNCHED.match, listed(cache, "--model", cache, *OF_LAYERS))))
    print("\n".join(problems))


if __name__ == "__main__":
    main()
