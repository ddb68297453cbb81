"""Autotuning of the peers.

Each problem (columns, rows up to the next power of two, element types) is tuned separately, as
Triton's users do. A config is timed for 20 ms instead of Triton's default 100 ms. That is still
some hundred launches, except for the largest problems, each with a flushed L2 cache; with 100 ms, tuning all
shapes would take longer than the measurement.
"""

import triton
import triton.testing

KEY = ["row_bucket", "num_cols"]
# The bucket is an argument only for the key, and must not cause more compilations.
UNSPECIALIZED = ["row_bucket"]

_WARMUP_MS, _REPEAT_MS = 5, 20


def benchmark(launch, quantiles):
    return triton.testing.do_bench(launch, warmup=_WARMUP_MS, rep=_REPEAT_MS, quantiles=quantiles)


def row_bucket(rows):
    return triton.next_power_of_2(rows)


def compile_configs(kernel, *arguments):
    """Compiles each config of an autotuned kernel, in parallel inside triton.AsyncCompileMode. Among the arguments,
    element types represent tensors."""
    for config in kernel.configs:
        kernel.fn.warmup(*arguments, grid=(1,), **config.all_kwargs())
