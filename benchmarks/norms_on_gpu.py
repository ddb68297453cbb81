"""Row norms on a GPU: times of dorajit.weight_norm and of the factored form of docs/layers.md, of ||W||^2 alone, and
of a transposed weight.

    python3 norms_on_gpu.py [--json FILE]

The Python package has to be on the path. Device times are medians of graph replays with a cold L2, in
microseconds (timing.py); host times are those of calls without synchronization; PyTorch's profiler counts kernels.
"""

import argparse
import json
import statistics
import time

import timing
import torch

from dorajit.norms import factored_norm, norm, norm_kernel

F32, BF16 = torch.float32, torch.bfloat16
NAMES = {F32: "f32", BF16: "bf16"}
BUDGET = 256 << 20
SCALE = 2.0
SAMPLES = 15
SHAPES = [(1024, 4096), (4096, 4096), (14336, 4096), (8192, 8192)]
RANKS = [4, 16, 64, 384]


def operands(out, columns, rank, weight_type, factor_type, transposed=False):
    weight = torch.randn(out, columns, device="cuda").to(weight_type)
    a, b = (torch.randn(shape, device="cuda").to(factor_type) / 64 for shape in ((rank, columns), (out, rank)))
    return (weight.T.contiguous().T if transposed else weight), a, b


def by_kernel(weight, a, b):
    return norm_kernel.norms(weight, a, b, SCALE, BUDGET, F32)


def by_factored_form(weight, a, b):
    return factored_norm.norms(weight, a, b, SCALE, BUDGET, F32)


def squares_by_kernel(weight, a, b):
    return norm_kernel.norms(weight, a, b, 0.0, BUDGET, F32, squared=True)


def squares_by_pytorch(weight, a, b):
    size = factored_norm.chunks(*weight.shape, BUDGET, factored_norm._cost_of_squares(weight, F32))
    return factored_norm._squares(weight, F32, size)


def device_us(calls, make, sampler):
    how = timing.rotation(make()[0].nbytes)
    sets = [make() for _ in range(how.sets)]
    for call in calls.values():
        call(*sets[0])
    graphs = {name: timing.capture(lambda i, call=call: call(*sets[i]), how) for name, call in calls.items()}
    return {name: round(statistics.median(times), 1)
            for name, times in sampler.times(graphs, how.launches, SAMPLES).items()}


def host_us(call, given, calls=30):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call(*given)
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return round(taken / calls * 1e6, 1)


def kernels(call, given):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call(*given)
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())


def measure_squares(sampler):
    for shape in SHAPES:
        for weight_type in NAMES:
            found = device_us({"kernel": squares_by_kernel, "PyTorch": squares_by_pytorch},
                              lambda: operands(*shape, 0, weight_type, weight_type), sampler)
            yield {"shape": shape, "weight": NAMES[weight_type], "us": found}


def measure_transposed(sampler):
    for shape in SHAPES[1:]:
        for rank in RANKS[1:]:
            for of in NAMES:
                def make():
                    return operands(*shape, rank, of, of, transposed=True)
                calls = {"factored": by_factored_form}
                if norm_kernel.serves(*make(), F32):
                    calls["kernel over copies"] = by_kernel
                yield {"shape": shape, "rank": rank, "types": NAMES[of], "us": device_us(calls, make, sampler)}


def measure_calls(sampler):
    for shape in SHAPES:
        for rank in RANKS:
            for factor_type in NAMES:
                given = operands(*shape, rank, BF16, factor_type)
                calls = {"call": lambda *of: norm.weight_norm(*of, SCALE), "factored": by_factored_form}
                found = device_us(calls, lambda: operands(*shape, rank, BF16, factor_type), sampler)
                yield {"shape": shape, "rank": rank, "weight": "bf16", "factors": NAMES[factor_type],
                       "by": "kernel" if norm_kernel.serves(*given, F32) else "factored form", "us": found,
                       "host_us": {name: host_us(call, given) for name, call in calls.items()},
                       "kernels": {name: kernels(call, given) for name, call in calls.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    options = parser.parse_args()
    sampler = timing.Sampler()
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    with torch.no_grad():
        for name, measured in ("calls", measure_calls), ("squares", measure_squares), (
                "transposed", measure_transposed):
            report[name] = []
            for row in measured(sampler):
                report[name].append(row)
                print(name, json.dumps(row), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
