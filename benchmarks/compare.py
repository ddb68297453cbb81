"""Times of implementations of one operation, in one run.

    python3 compare.py row_norms [--shapes 4096x4096 ...] [--ranks 16 384] [--types bf16 ...] [--json FILE]
    python3 compare.py row_norms --device cpu --only dorajit factored

A case is a file of cases/, which names its contenders. The Python package has to be on the path. Times are medians in
microseconds of interleaved samples in random order: on a GPU of graph replays with a cold L2 (timing.py), on a CPU of
single calls. The floor is the larger of the operands' bytes at the speed of a copy and the multiply-adds at the peak of
the tensor cores. With --host also the host's time of a call without synchronization, and the number of its kernels.
"""

import argparse
import importlib
import pathlib
import random
import statistics
import time

import report
import timing
import torch

from dorajit import errors

# Multiply-adds per second of the 16-bit tensor cores of an H100 or H200.
MULTIPLY_ADDS = 395e12
HOST_CALLS = 30


def device_us(calls, make, given, sampler, samples):
    how = timing.rotation(sum(one.nbytes for one in given))
    sets = [given, *(make() for _ in range(how.sets - 1))]
    graphs = {name: timing.capture(lambda i, call=call: call(*sets[i]), how) for name, call in calls.items()}
    return sampler.times(graphs, how.launches, samples)


def single_calls_us(calls, given, samples):
    times = {name: [] for name in calls}
    for _ in range(samples):
        for name in random.sample(list(calls), len(calls)):
            start = time.perf_counter()
            calls[name](*given)
            times[name].append((time.perf_counter() - start) * 1e6)
    return times


def host_us(call, given):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(HOST_CALLS):
        call(*given)
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return taken / HOST_CALLS * 1e6


def kernels(call, given):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call(*given)
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())


def measure(case, shape, rank, types, sampler, bandwidth, options):
    def make():
        return case.operands(shape, rank, case.TYPES[types], options.device)
    given = make()
    calls = {name: call for name, call in case.contenders(given).items() if not options.only or name in options.only}
    row = {"shape": "x".join(map(str, shape)), "rank": rank, "types": types}
    for name, call in list(calls.items()):
        try:
            call(*given), call(*given)  # the first call compiles and tunes
        except errors.Error as refused:
            row.setdefault("refused", {})[name] = str(refused)
            del calls[name]
    row |= case.errors(given, calls)
    times = (device_us(calls, make, given, sampler, options.samples) if sampler
             else single_calls_us(calls, given, options.samples))
    row["us"] = {name: statistics.median(found) for name, found in times.items()}
    if sampler:
        row["floor_us"] = 1e6 * max(case.multiply_adds(shape, rank) / MULTIPLY_ADDS,
                                    sum(one.nbytes for one in given) / bandwidth)
    if sampler and options.host:
        row["host_us"] = {name: host_us(call, given) for name, call in calls.items()}
        row["kernels"] = {name: kernels(call, given) for name, call in calls.items()}
    return row


def show(row):
    times = "  ".join(f"{name} {value:.1f}" for name, value in row["us"].items())
    rank = "" if row["rank"] is None else f" rank {row['rank']}"
    print(f"{row['shape']}{rank} {row['types']}: {times}  {row.get('refused', '')}", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found = sorted(path.stem for path in (pathlib.Path(__file__).parent / "cases").glob("[a-z]*.py"))
    parser.add_argument("case", choices=found)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shapes", nargs="+", metavar="RxC", type=lambda text: tuple(map(int, text.split("x"))))
    parser.add_argument("--ranks", type=int, nargs="+")
    parser.add_argument("--types", nargs="+")
    parser.add_argument("--only", nargs="+", metavar="CONTENDER")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--host", action="store_true", help="on a GPU: also measure the host's time and count kernels")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


@torch.no_grad()
def main():
    options = arguments()
    case = importlib.import_module(f"cases.{options.case}")
    sampler = timing.Sampler() if options.device == "cuda" else None
    bandwidth = sampler.copy_bandwidth() if sampler else None
    conditions = {"case": options.case, "torch": torch.__version__,
                  "device": torch.cuda.get_device_name() if sampler else f"cpu, {torch.get_num_threads()} threads",
                  "bytes_per_second": bandwidth}
    rows = []
    for shape in options.shapes or case.SHAPES[options.device]:
        for rank in options.ranks or case.RANKS[options.device]:
            for types in options.types or case.TYPES:
                rows.append(measure(case, shape, rank, types, sampler, bandwidth, options))
                show(rows[-1])
    report.write(options.json, conditions, rows)


if __name__ == "__main__":
    main()
