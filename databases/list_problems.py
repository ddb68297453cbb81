#!/usr/bin/env python3
"""Prints the problems whose winners ship, one a line, for `dorajit tune --from FILE`.

Every op at the 20 shapes that benchmarks/kernels.py compares and at those of `dorajit demo` (the
projections of three models at 1, 512 and 4096 tokens), in bf16, f16, f32, and bf16 with a gain in f32.
"""

BENCHMARK_SHAPES = [(1, 4096), (512, 4096), (2048, 4096), (4096, 4096), (2048, 8192), (8192, 8192),
                    (16384, 8192), (32768, 8192), (1, 512), (512, 512), (2048, 512), (8192, 512),
                    (2048, 1024), (2048, 2048), (2048, 3072), (2048, 6144), (2048, 12288),
                    (2048, 16384), (2048, 28672), (8192, 28672)]
DEMO_SHAPES = [(rows, cols) for rows in (1, 512, 4096)
               for cols in (1024, 4096, 5120, 12288, 14336, 32768)]
# Of the activations and of the gain, and the widest vectors of these activations.
TYPE_MIXES = [("bf16", "bf16", 8), ("f16", "f16", 8), ("f32", "f32", 4), ("bf16", "f32", 8)]


def variants(activations, gain):
    """Each with its operands in the order of the op, and whether it has but one row."""
    yield f"compose/{activations},{activations},{gain},{activations}"
    yield f"compose_inner/{activations},{activations},{gain},{activations},{activations}"
    yield (f"backward/{activations},{activations},{gain},{activations},{activations},{gain}")
    yield f"compose_residual/{activations},{activations},{gain},-,{activations},{activations}"
    yield f"compose_residual/{activations},{activations},{gain},-,{activations},-"
    yield (f"compose_residual/{activations},{activations},{gain},{activations},{activations},"
           f"{activations}")
    yield (f"residual_backward/{activations},{activations},{gain},{activations},{activations},{gain}")


def main():
    shapes = sorted({((rows - 1).bit_length(), cols) for rows, cols in BENCHMARK_SHAPES + DEMO_SHAPES})
    for activations, gain, width in TYPE_MIXES:
        for variant in variants(activations, gain):
            for bucket, cols in shapes:
                print(f"{variant}/v{width}/c{cols}/r{bucket}")
        # Norms of a bf16 layer are assembled from terms in f32 where its gain is in f32.
        width = 8 if gain != "f32" else 4
        for cols in sorted({cols for _, cols in shapes}):
            print(f"norm_assembly/{gain},{gain},{gain},{activations}/v{width}/c{cols}/r0")


if __name__ == "__main__":
    main()
