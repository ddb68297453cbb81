"""dorajit on the CPU, compared with the unfused expressions of PyTorch, or of NumPy where PyTorch is missing.

    python3 on_cpu.py --library libdorajit.so.0 [--ops compose,backward] [--json FILE]

The default shapes exceed the caches, so that memory traffic determines the time. `unfused` is the expression as
users write it; each operation allocates its result, which causes page faults. `passes` is the same
operations with existing buffers. `add` is one pass over three
matrices, the lower bound of compose. Contenders are interleaved in random order; times are medians.
The machine must be idle: threads that wait for each other lose whole time slices to other programs.
"""

import argparse
import ctypes
import json
import os
import random
import statistics
import time

try:
    import torch as arrays
except ImportError:
    import numpy as arrays

import dorajit_c

SCALE = 0.5
ON_TORCH = arrays.__name__ == "torch"
# Element types of activations and gain. NumPy has no bf16.
TYPE_MIXES = {"f32": ("float32", "float32")}
if ON_TORCH:
    TYPE_MIXES |= {"bf16": ("bfloat16", "bfloat16"), "bf16_f32gain": ("bfloat16", "float32")}


def normal(shape, element_type):
    if ON_TORCH:
        return arrays.randn(*shape).to(getattr(arrays, element_type))
    return arrays.random.default_rng().standard_normal(shape, dtype=element_type)


def unwritten(shape, element_type):
    """Memory that was written once, so that no measurement includes page faults."""
    return arrays.zeros(shape, dtype=getattr(arrays, element_type))


def promoted(element_type, gain_type):
    return element_type if element_type == gain_type else "float32"


def wide(array):
    return array.double() if ON_TORCH else array.astype("float64")


def relative_error(array, expected):
    norm = arrays.linalg.norm
    return float(norm(wide(array) - expected) / norm(expected))


class Compose:
    def __init__(self, shape, element_type, gain_type):
        self._lora, self._base = (normal(shape, element_type) for _ in range(2))
        self._gain = 1 + normal(shape[1:], gain_type) / 8
        self._out = unwritten(shape, element_type)
        self._terms = [unwritten(shape, promoted(element_type, gain_type)) for _ in range(2)]

    def dorajit(self, library):
        lora, base, gain, out = map(dorajit_c.view, (self._lora, self._base, self._gain, self._out))
        return lambda: library.compose(None, lora, base, gain, SCALE, out)

    def unfused(self):
        return (self._gain - 1) * self._base + self._gain * (SCALE * self._lora)

    def passes(self):
        of_base, of_lora = self._terms
        arrays.multiply(self._gain - 1, self._base, out=of_base)
        arrays.multiply(self._lora, SCALE, out=of_lora)
        arrays.multiply(self._gain, of_lora, out=of_lora)
        arrays.add(of_base, of_lora, out=self._out)

    def add(self):
        arrays.add(self._lora, self._base, out=self._out)

    def error(self):
        """The relative error of the last dorajit call."""
        lora, base, gain = map(wide, (self._lora, self._base, self._gain))
        return relative_error(self._out, (gain - 1) * base + gain * (SCALE * lora))


class Backward:
    def __init__(self, shape, element_type, gain_type):
        self._d_out, self._inner = (normal(shape, element_type) for _ in range(2))
        self._gain = 1 + normal(shape[1:], gain_type) / 8
        self._d_lora, self._d_base = (unwritten(shape, element_type) for _ in range(2))
        self._d_gain = unwritten(shape[1:], gain_type)
        self._product = unwritten(shape, element_type)

    def dorajit(self, library):
        d_out, inner, gain, d_lora, d_base, d_gain = map(
            dorajit_c.view, (self._d_out, self._inner, self._gain, self._d_lora, self._d_base,
                             self._d_gain))
        size = library.backward_workspace(d_out, gain)
        self._workspace = ctypes.create_string_buffer(size + 64)
        aligned = (ctypes.addressof(self._workspace) + 63) // 64 * 64
        return lambda: library.backward(None, d_out, inner, gain, SCALE, d_lora, d_base, d_gain,
                                        aligned if size else None, size)

    def unfused(self):
        return ((self._gain * SCALE) * self._d_out, (self._gain - 1) * self._d_out,
                (self._inner * self._d_out).sum(0))

    def passes(self):
        arrays.multiply(self._gain * SCALE, self._d_out, out=self._d_lora)
        arrays.multiply(self._gain - 1, self._d_out, out=self._d_base)
        arrays.multiply(self._inner, self._d_out, out=self._product)
        self._product.sum(0)

    def add(self):
        arrays.add(self._d_out, self._inner, out=self._d_lora)

    def error(self):
        """The largest relative error of the three results."""
        d_out, inner, gain = map(wide, (self._d_out, self._inner, self._gain))
        return max(relative_error(self._d_lora, gain * SCALE * d_out),
                   relative_error(self._d_base, (gain - 1) * d_out),
                   relative_error(self._d_gain, (inner * d_out).sum(0)))


OPERATIONS = {"compose": Compose, "backward": Backward}


def milliseconds(run):
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def measure(operation, shape, types, library, samples):
    operands = OPERATIONS[operation](shape, *TYPE_MIXES[types])
    contenders = {"dorajit": operands.dorajit(library), "unfused": operands.unfused,
                  "passes": operands.passes, "add": operands.add}
    contenders["dorajit"]()
    error = operands.error()
    times = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    for _ in range(samples):
        for name in random.sample(list(contenders), len(contenders)):
            times[name].append(milliseconds(contenders[name]))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {"operation": operation, "rows": shape[0], "cols": shape[1], "types": types,
            "median_ms": medians, "samples": samples, "relative_error": error,
            "quartiles_ms": {name: statistics.quantiles(values, n=4)
                             for name, values in times.items()},
            "over_dorajit": {name: medians[name] / medians["dorajit"] for name in medians}}


def show(one):
    print(f"{one['operation']:>8} {one['rows']:>6}x{one['cols']:<5} {one['types']:>12} "
          f"{one['median_ms']['dorajit']:>9.2f}"
          + "".join(f"{one['median_ms'][name]:>9.2f} {one['over_dorajit'][name]:>7.2f}"
                    for name in ("unfused", "passes", "add"))
          + f"{one['relative_error']:>9.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--ops", default=",".join(OPERATIONS))
    parser.add_argument("--types", default=",".join(TYPE_MIXES))
    parser.add_argument("--shapes", default="4096x4096,8192x4096,2048x11008")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    library = dorajit_c.Dorajit(arguments.library)
    report = {"processors": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0],
              "against": arrays.__name__, "version": arrays.__version__,
              "threads": arrays.get_num_threads() if ON_TORCH else 1, "results": []}
    print(f"{report['processors']} processors, load {report['load']:.1f}; {report['against']} "
          f"{report['version']} with {report['threads']} threads; milliseconds")
    print(f"{'':>8} {'shape':>12} {'types':>12} {'dorajit':>9}"
          + "".join(f"{name:>9} (ratio)" for name in ("unfused", "passes", "add"))
          + f"{'error':>9}")
    for operation in arguments.ops.split(","):
        for shape in arguments.shapes.split(","):
            for types in arguments.types.split(","):
                one = measure(operation, tuple(map(int, shape.split("x"))), types, library,
                              arguments.samples)
                report["results"].append(one)
                show(one)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
