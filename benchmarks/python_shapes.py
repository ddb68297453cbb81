"""Time of Python calls at each of the paper's shapes, compared with eager PyTorch and Triton, in one run.

    PYTHONPATH=build/release/bindings/python python3 python_shapes.py --json python_shapes.json
    ... python_shapes.py --device cpu --shapes 1x64,32x64 --rounds 3

There are three kinds of calls: compose without autograd, autograd's forward pass, and forward and backward for
all three gradients. In each round the contenders of a case are interleaved in random order. A round measures a
burst of calls between two events, and a single call on the host's clock, from one synchronization
to the next. Reported are medians, the peak of PyTorch's allocator
over forward and backward, and every case in which dorajit is not the fastest. The results of each contender are
checked first. The JSON file is rewritten after every case.
"""

import argparse
import os
import random
import statistics
import time

import torch

import report
from kernel_cases import SHAPES, TYPE_MIXES

SCALE = 0.5
# The length of a burst, in time and in calls.
BURST_SECONDS, BURST_CALLS = 1.5e-3, (2, 30)
# Limit of |error| over the largest magnitude: the error of rounding each of eager's operations to bf16.
TOLERANCE = {torch.bfloat16: 3e-2, torch.float16: 5e-3, torch.float32: 1e-4}
KINDS = ("compose", "autograd forward", "forward and backward")


def eager(lora, base, gain, scale):
    return (gain - 1) * base + gain * (scale * lora)


def contenders(options):
    """Name -> (function without autograd, function with autograd)."""
    import dorajit  # after the environment is set, which it reads
    found = {"dorajit": (lambda *of: dorajit.fused_dora_compose(*of, inplace=False),
                         dorajit.fused_dora_compose_autograd),
             "eager": (eager, eager)}
    if options.device == "cuda":
        import triton_autograd
        for types in options.types:
            triton_autograd.precompile(*TYPE_MIXES[types], options.two_stage)
        found["triton"] = triton_autograd.compose, triton_autograd.Compose.apply
        if options.two_stage:
            found["triton_two_stage"] = (triton_autograd.compose,
                                         triton_autograd.ComposeTwoStage.apply)
    return found


class Case:
    """Operands for one shape and mix of types."""

    def __init__(self, shape, types, device):
        dtype, gain_dtype = TYPE_MIXES[types]
        def matrix():
            return torch.randn(shape, device=device, dtype=dtype)
        self.tensors = [matrix(), matrix(),
                        (1 + 0.1 * torch.randn(shape[1], device=device)).to(gain_dtype)]
        self.leaves = [tensor.detach().requires_grad_() for tensor in self.tensors]
        self.d_out = matrix()
        self.matrix_bytes = self.d_out.nbytes

    def call(self, kind, functions):
        """A function that makes one call and drops its results."""
        plain, with_grad = functions
        if kind == "compose":
            def run():
                with torch.no_grad():
                    return (plain(*self.tensors, SCALE),)
        elif kind == "autograd forward":
            def run():
                return (with_grad(*self.leaves, SCALE),)
        else:
            def run():
                return torch.autograd.grad(with_grad(*self.leaves, SCALE), self.leaves, self.d_out)
        return run

    def expected(self, kind):
        """The expected results in float64."""
        wide = [tensor.detach().double().requires_grad_() for tensor in self.tensors]
        out = eager(*wide, SCALE)
        if kind != KINDS[2]:
            return (out.detach(),)
        return torch.autograd.grad(out, wide, self.d_out.double())


def worst_error(found, expected):
    return max(((one.double() - other).abs().max() / other.abs().max().clamp(min=1e-30)).item()
               for one, other in zip(found, expected))


class Clock:
    """Measures calls on the device, and on the host including the wait for the device."""

    def __init__(self, device):
        self.device = device

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def one(self, run):
        """Microseconds of a call including the wait for its result."""
        self.synchronize()
        start = time.perf_counter()
        run()
        self.synchronize()
        return (time.perf_counter() - start) * 1e6

    def burst(self, run, calls):
        """Microseconds per call in a burst."""
        if self.device != "cuda":
            start = time.perf_counter()
            for _ in range(calls):
                run()
            return (time.perf_counter() - start) * 1e6 / calls
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.synchronize()
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        self.synchronize()
        return begin.elapsed_time(end) * 1e3 / calls


def measure(runs, clock, options):
    """Contender -> microseconds in bursts, and of single calls."""
    single = {name: min(clock.one(run) for _ in range(3)) for name, run in runs.items()}
    calls = {name: min(max(round(BURST_SECONDS * 1e6 / each), BURST_CALLS[0]), BURST_CALLS[1])
             for name, each in single.items()}
    bursts, alone = ({name: [] for name in runs} for _ in range(2))
    for _ in range(options.rounds):
        for name in random.sample(list(runs), len(runs)):
            bursts[name].append(clock.burst(runs[name], calls[name]))
            alone[name].append(statistics.median(clock.one(runs[name]) for _ in range(3)))
    return {clock: {name: statistics.median(values) for name, values in times.items()}
            for clock, times in (("burst_us", bursts), ("call_and_wait_us", alone))}


def peak_bytes(run):
    """The memory of one call in addition to its operands."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return torch.cuda.max_memory_allocated() - before


def measured(shape, types, functions, clock, options):
    """The results for a shape, one for each kind of call."""
    case = Case(shape, types, options.device)
    for kind in KINDS:
        runs = {name: case.call(kind, pair) for name, pair in functions.items()
                if name != "triton_two_stage" or kind == KINDS[2]}
        result = {"call": kind, "rows": shape[0], "cols": shape[1], "types": types, "errors": {}}
        expected = case.expected(kind)
        for name, run in runs.items():  # the first calls compile and tune
            result["errors"][name] = worst_error(run(), expected)
        del expected
        result["wrong"] = [name for name, error in result["errors"].items()
                           if not error <= TOLERANCE[case.d_out.dtype]]
        result |= measure(runs, clock, options)
        if options.device == "cuda" and kind == KINDS[2]:
            result["peak_bytes"] = {name: peak_bytes(run) for name, run in runs.items()}
            result["matrix_bytes"] = case.matrix_bytes
        yield result


def behind(results):
    """The cases in which a contender's median is lower than dorajit's."""
    return [f"{one['call']} {one['rows']}x{one['cols']} {one['types']}, {clock}: {name} "
            f"{time / one[clock]['dorajit']:.3f} of dorajit's {one[clock]['dorajit']:.1f} us"
            for one in results for clock in ("burst_us", "call_and_wait_us")
            for name, time in one[clock].items() if time < one[clock]["dorajit"]]


def show(result):
    text = "  ".join(f"{name} {time:.1f}/{result['call_and_wait_us'][name]:.1f}"
                     f" ({time / result['burst_us']['dorajit']:.2f})"
                     for name, time in result["burst_us"].items())
    peaks = "".join(f"  {name} {peak / result['matrix_bytes']:.2f}"
                    for name, peak in result.get("peak_bytes", {}).items())
    print(f"{result['call']:>20} {result['rows']:>5}x{result['cols']:<5} {result['types']}: {text}"
          f"{'  peak in matrices:' + peaks if peaks else ''}"
          f"{''.join('  WRONG ' + name for name in result['wrong'])}", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"),
                        default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--types", type=lambda text: text.split(","), default=["bf16"],
                        help="of " + ", ".join(TYPE_MIXES))
    parser.add_argument("--shapes", default=SHAPES, metavar="RxC,...", type=lambda text: [
        tuple(map(int, shape.split("x"))) for shape in text.split(",")])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--two-stage", action="store_true",
                        help="also measure the faster Triton backward pass, whose tuning takes a minute")
    parser.add_argument("--tune-seconds", default="0.5", help="dorajit's tuning budget per problem")
    parser.add_argument("--budget-seconds", type=float, default=110, help="begin no shape after this time")
    parser.add_argument("--json")
    return parser.parse_args()


def main():
    begun = time.monotonic()
    options = parse_arguments()
    os.environ.setdefault("DORAJIT_TUNE_SECONDS", options.tune_seconds)
    functions = contenders(options)
    clock = Clock(options.device)
    conditions = {"device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
                  "torch": torch.__version__, "rounds": options.rounds, "load": os.getloadavg()[0]}
    results = []
    print(f"{conditions['device']}, PyTorch {torch.__version__}, ready after "
          f"{time.monotonic() - begun:.1f} s; microseconds a call, in bursts / alone and waited for "
          "(in bursts over dorajit's)")
    left_out = 0
    for types in options.types:
        for shape in options.shapes:
            if time.monotonic() - begun > options.budget_seconds:
                left_out += 1
                continue
            for result in measured(shape, types, functions, clock, options):
                show(result)
                results.append(result)
            report.write(options.json, conditions, results)
    slower = behind(results)
    print(f"{left_out} shapes left out; {time.monotonic() - begun:.0f} s; dorajit is behind in {len(slower)} medians:",
          *slower, sep="\n  ")


if __name__ == "__main__":
    main()
