#!/usr/bin/env python3
"""Prints the problems whose winners ship, one a line, for `dorajit tune --from FILE`.

Every op that `dorajit prewarm --list` knows, in each of its forms, at the 20 shapes that
benchmarks/kernels.py compares and at those of `dorajit demo` (the projections of three models at 1, 512
and 4096 tokens), in bf16, f16, f32, and bf16 with a gain in f32. Then what a model of the size of Llama 3.1 8B
launches in the recipes of `python -m dorajit.prewarm`, at ranks 16 and 64. Needs `dorajit` on the PATH, and for the
second part the Python package, transformers and PEFT.

    python3 list_problems.py [--layers] [--arch sm_90]

With --layers the last alone. Which kernels a model launches depends on the architecture.
"""

import argparse
import itertools
import json
import pathlib
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
# Llama 3.1 8B; its layers are alike, so one is enough.
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
         "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 1, "vocab_size": 128256}
RECIPES = ["bf16", "float32-adapters", "autocast"]


def lines_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--arch", default="sm_90")
    given = parser.parse_args()
    shapes = ",".join(f"{rows}x{cols}" for rows, cols in BENCHMARK_SHAPES + DEMO_SHAPES)
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for types in () if given.layers else TYPES:
            problems += lines_of("dorajit", "prewarm", "--list", "--arch", given.arch, "--cache-dir", folder, "--shape",
                                 shapes, *types)
        pathlib.Path(folder, "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        for recipe, rank, dropout in itertools.product(RECIPES, ("16", "64"), ("0", "0.05")):
            problems += lines_of(sys.executable, "-m", "dorajit.prewarm", "--list", "--arch", given.arch, "--model", folder,
                                 "--rank", rank, "--tokens", "4096", "--dropout", dropout, "--recipe", recipe)
    print("\n".join(dict.fromkeys(problems)))


if __name__ == "__main__":
    main()
