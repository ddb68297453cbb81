"""Device time of dorajit's kernels, Triton, PyTorch and torch.compile, in one run on one GPU.

    python3 kernels.py --library libdorajit.so.0 --table kernels.md
    python3 kernels.py --library libdorajit.so.0 --ops backward --types bf16 --shapes 8192x8192

Needs PyTorch with CUDA, and Triton. Contenders of a case are interleaved, so ratios compare
within the run. Every contender's results are checked before its time counts. The table is
rewritten after every case, so that an interrupted run keeps its measurements.
"""

import argparse
import concurrent.futures
import os
import statistics
import sys
import time

import torch
import triton

import dorajit_c
import kernel_report
import timing
from kernel_cases import SHAPES, TYPE_MIXES, Case
from operations import OPERATIONS, verdict


def cases(arguments):
    """Pairs of operation and case, in the order in which they are measured."""
    for operation in arguments.ops:
        if operation == "norm_assembly":
            # It works on vectors of one type, so rows and type mixes make no difference.
            for cols in sorted({cols for _, cols in arguments.shapes}):
                yield OPERATIONS[operation], Case(1, cols, "f32")
            continue
        for types in arguments.types:
            for rows, cols in arguments.shapes:
                yield OPERATIONS[operation], Case(rows, cols, types)


def precompile(arguments):
    """Compiles the peers' kernels for all configs on all cores, instead of one by one while tuning."""
    with (concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as executor,
          triton.AsyncCompileMode(executor)):
        for operation in arguments.ops:
            for types in arguments.types:
                OPERATIONS[operation].precompile(*TYPE_MIXES[types])


def contenders(operation, case, arguments):
    for name in operation.contenders:
        left_out = name not in arguments.contenders or (
            name == "torch_compile" and (case.rows, case.cols) not in arguments.compile_shapes)
        if not left_out:
            yield name


def measure(operation, case, library, sampler, arguments):
    how = timing.rotation(operation.moved_bytes(case))
    operands = operation(case, how.sets)
    expected = operands.expected()
    graphs = {}
    result = {"operation": operation.name, **vars(case),
              "moved_bytes": operation.moved_bytes(case),
              "added_bytes": operation.added_bytes(case),
              "launches": how.launches, "sets": how.sets, "samples": arguments.samples,
              "first_call_s": {}, "errors": {}, "configs": {}, "failed": {}, "wrong": []}
    for name in contenders(operation, case, arguments):
        try:
            graphs[name] = prepare(name, operands, case, expected, how, library, result,
                                   arguments.before)
        # If one contender fails, the others are still measured.
        except Exception as error:  # noqa: BLE001
            message = " ".join(str(error).split())
            result["failed"][name] = f"{type(error).__name__}: {message[:200]}"
    del expected
    times = sampler.times(graphs, how.launches, arguments.samples)
    result["median_us"] = {name: statistics.median(values) for name, values in times.items()}
    result["quartiles_us"] = {name: timing.quartiles(values) for name, values in times.items()}
    return result


def prepare(name, operands, case, expected, how, library, result, before):
    """The contender's graph, after tuning, capture and a check of its results."""
    contender = getattr(operands, name)
    run = contender(library) if name == "dorajit" else contender()
    start = time.perf_counter()
    run(0)
    torch.cuda.synchronize()
    result["first_call_s"][name] = time.perf_counter() - start
    if config := operands.chosen_config(name):
        result["configs"][name] = config
    graph = timing.capture(run, how, before)
    if name != "torch_add":
        outputs = operands.outputs()
        verdict.poison(outputs)
        graph.replay()
        errors = result["errors"][name] = verdict.errors(outputs, expected)
        if not (verdict.exact(outputs, expected) if name == "dorajit"
                else verdict.within_limits(errors, case.dtype)):
            result["wrong"].append(name)
    return graph


def publish(path, text):
    with open(path + ".part", "w") as file:
        file.write(text)
    os.replace(path + ".part", path)


def progress(result):
    times = "  ".join(f"{name} {time:.2f}" for name, time in result["median_us"].items())
    flaws = "".join(f"  FAILED {name}" for name in result["failed"])
    flaws += "".join(f"  WRONG {name}" for name in result["wrong"])
    print(f"{result['operation']} {result['rows']}x{result['cols']} {result['types']}: "
          f"{times}{flaws}", flush=True)


def names(known):
    def parse(text):
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return chosen
    return parse


def shapes(text):
    return [tuple(map(int, shape.split("x"))) for shape in text.split(",") if shape]


def parse_arguments():
    all_contenders = list(dict.fromkeys(
        name for operation in OPERATIONS.values() for name in operation.contenders))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", help="libdorajit.so.0; needed unless dorajit is left out")
    parser.add_argument("--ops", type=names(OPERATIONS), default=list(OPERATIONS))
    parser.add_argument("--types", type=names(TYPE_MIXES), default=list(TYPE_MIXES))
    parser.add_argument("--shapes", type=shapes, default=list(SHAPES), metavar="RxC,...")
    parser.add_argument("--contenders", type=names(all_contenders), default=all_contenders)
    parser.add_argument("--compile-shapes", type=shapes, metavar="RxC,...",
                        default=[(2048, 4096), (8192, 8192), (2048, 28672)],
                        help="the cases with torch.compile as a contender, which takes seconds per case")
    parser.add_argument("--after-foreign", action="store_true",
                        help="measure each launch right after a short kernel of PyTorch, and both "
                             "together; without it each launch follows a launch of the same kernel")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--budget-seconds", type=float, default=float("inf"),
                        help="begin no case after this time")
    parser.add_argument("--table", help="also write the tables to this file, as Markdown, after every case")
    arguments = parser.parse_args()
    if "dorajit" in arguments.contenders and not arguments.library:
        parser.error("--library is missing (or leave dorajit out of --contenders)")
    return arguments


def main():
    begun = time.monotonic()
    arguments = parse_arguments()
    library = dorajit_c.Dorajit(arguments.library) if arguments.library else None
    if any(name.startswith("triton") for name in arguments.contenders):
        precompile(arguments)
    sampler = timing.Sampler()
    arguments.before = timing.foreign_kernel() if arguments.after_foreign else None
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
              "triton": triton.__version__, "copy_bytes_per_s": sampler.copy_bandwidth(),
              "after_foreign": arguments.after_foreign, "results": []}
    print(f"ready after {time.monotonic() - begun:.1f} s", flush=True)
    for operation, case in cases(arguments):
        if time.monotonic() - begun > arguments.budget_seconds:
            print("the time budget is used up: the remaining cases are skipped", flush=True)
            break
        report["results"].append(measure(operation, case, library, sampler, arguments))
        progress(report["results"][-1])
        torch.cuda.empty_cache()
        if arguments.table:
            publish(arguments.table, kernel_report.render(report, markdown=True))
    print("\n" + kernel_report.render(report))
    return 1 if any(one["wrong"] for one in report["results"]) else 0


if __name__ == "__main__":
    sys.exit(main())
