#!/usr/bin/env python3
"""Prints the problems whose winners ship, one a line, for `dorajit tune --from FILE`; or tunes them for this GPU.

Every op that `dorajit prewarm --list` knows, in each of its forms, at the 20 shapes that
benchmarks/kernels.py compares and at those of `dorajit demo` (the projections of three models at 1, 512
and 4096 tokens), in bf16, f16, f32, and bf16 with a gain in f32. Then what a model of the size of Llama 3.1 8B
launches in the recipes of `python -m dorajit.prewarm`, at ranks 16 and 64. Needs `dorajit` on the PATH, and for the
second part the Python package, transformers and PEFT.

    python3 list_problems.py [--layers] [--arch sm_90] [--tune FILE.jsonl]

With --layers the last alone. Which kernels a model launches depends on the architecture: of the GPU that is here, else
sm_90, where --arch names none. With --tune the problems are tuned in a folder of their own, on an idle GPU, and FILE gets
the trials that prove the winners. Ends with a failure if a problem could not be tuned, such as one of compose_low_rank
before sm_80; FILE has the others.
"""

import argparse
import contextlib
import io
import itertools
import json
import os
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


def recorded(*arguments):
    """What `python -m dorajit.prewarm --list` prints. Here, because PyTorch takes long to import."""
    from dorajit.prewarm.__main__ import main
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main(["--list", *arguments])
    return printed.getvalue().splitlines()


def arch_here():
    import torch
    return "sm_{}{}".format(*torch.cuda.get_device_capability()) if torch.cuda.is_available() else "sm_90"


def tune(problems, file):
    """The exit status of `dorajit tune`."""
    with tempfile.TemporaryDirectory() as folder:
        listed = pathlib.Path(folder, "problems.txt")
        listed.write_text(problems, encoding="utf-8")
        environment = {**os.environ, "DORAJIT_DATABASES": "none", "DORAJIT_CACHE_DIR": folder}
        status = subprocess.run(["dorajit", "tune", "--from", listed, "--device", "cuda"], env=environment).returncode
        if status not in (0, 1):  # it says what is missing
            return status
        subprocess.run(["dorajit", "export", "--ship", "--out", file], env=environment, check=True)
    subprocess.run(["dorajit", "doctor", file], check=True)
    return status


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--arch")
    parser.add_argument("--tune", metavar="FILE.jsonl")
    given = parser.parse_args()
    given.arch = given.arch or arch_here()
    shapes = ",".join(f"{rows}x{cols}" for rows, cols in BENCHMARK_SHAPES + DEMO_SHAPES)
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for types in () if given.layers else TYPES:
            problems += lines_of("dorajit", "prewarm", "--list", "--arch", given.arch, "--cache-dir", folder, "--shape",
                                 shapes, *types)
        pathlib.Path(folder, "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        for recipe, rank, dropout in itertools.product(RECIPES, ("16", "64"), ("0", "0.05")):
            problems += recorded("--arch", given.arch, "--model", folder, "--rank", rank, "--tokens", "4096", "--dropout",
                                 dropout, "--recipe", recipe)
    text = "\n".join(dict.fromkeys(problems)) + "\n"
    if given.tune:
        sys.exit(tune(text, given.tune))
    print(text, end="")


if __name__ == "__main__":
    main()
