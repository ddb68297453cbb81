"""Row norms of W + s B A on a GPU, bf16: dorajit's kernel, the best Triton tile kernel (peers/weight_norm.py), the
factored form (docs/layers.md) and PyTorch's dense expression, compared with the lower bound by bytes and tensor cores.
Triton's kernel runs twice: with one accumulator for the whole rank, and with sums of blocks, as dorajit's.

    python3 row_norms.py [--factors float32] [--ranks 4 16] [--json FILE]

The Python package has to be on the path. Device times are medians of interleaved graph replays with a cold L2, in
microseconds (timing.py). The error is the largest of any row against float64, in units of
||W_i|| + |s| || |B| |A| ||_i, for the measured factors and for their magnitudes.
"""

import argparse
import json
import statistics

import timing
import torch
from peers import weight_norm as peer

from dorajit import errors
from dorajit.norms import factored_norm, norm_kernel
from dorajit.operations.table import operations

SHAPES = [(512, 4096), (1024, 4096), (4096, 1024), (4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192),
          (28672, 8192)]
RANKS = [4, 16, 64, 256, 384, 768]
SCALE = 0.7
SAMPLES = 15
BUDGET = 256 << 20
# Multiply-adds per second of the 16-bit tensor cores of an H100 or H200.
MULTIPLY_ADDS = 395e12


def operands(shape, rank, factor_type):
    rows, columns = shape
    weight = torch.randn(rows, columns, device="cuda").mul_(0.02).bfloat16()
    a = torch.randn(rank, columns, device="cuda").mul_(0.02).to(factor_type)
    b = torch.randn(rows, rank, device="cuda").mul_(0.01).to(factor_type)
    return weight, a, b


def error(norms, weight, a, b):
    """The largest error, in units of the magnitudes that are summed."""
    worst = 0.0
    for rows in torch.arange(weight.shape[0], device="cuda").split(2048):
        wide = weight[rows].double()
        exact = (wide + SCALE * (b[rows].double() @ a.double())).norm(dim=1)
        unit = wide.norm(dim=1) + SCALE * (b[rows].double().abs() @ a.double().abs()).norm(dim=1)
        worst = max(worst, ((norms[rows].double() - exact).abs() / unit).max().item())
    return worst


def dense(weight, a, b):
    return torch.linalg.vector_norm(torch.addmm(weight, b.to(weight.dtype), a.to(weight.dtype), alpha=SCALE), dim=1,
                                    dtype=torch.float32)


def best_of_peer(given, norm, in_blocks):
    """The fastest launch of Triton's kernel for these matrices."""
    times = {}
    for way in peer.ways(*given):
        def call(way=way):
            return peer.weight_norm(way, *given, SCALE, norm, in_blocks)
        call()
        times[way] = peer.tuning.benchmark(call, (0.5,))
    return min(times, key=times.get)


def of_one_sign(weight, a, b):
    """Operands whose products all have one sign, so that truncations add up."""
    return weight, a.abs(), b.abs()


def measure(shape, rank, factor_type, sampler, bandwidth):
    rows, columns = shape
    given = operands(shape, rank, factor_type)
    norm = torch.empty(rows, device="cuda")
    launch = operations["weight_norm"].launch

    def kernel(*of):
        return launch(*of, None, norm, None, None, None, SCALE)
    calls = {"dorajit": kernel, "factored": lambda *of: factored_norm.norms(*of, SCALE, BUDGET, torch.float32),
             "dense": dense}
    row = {"out": rows, "in": columns, "rank": rank,
           "serves": bool(norm_kernel.serves(*given, torch.float32))}
    if factor_type is torch.bfloat16:
        for name, in_blocks in (("triton", False), ("triton_in_blocks", True)):
            way = best_of_peer(given, norm, in_blocks)
            row[f"{name}_way"] = f"{way[0]}, {way[1]} parts"
            calls[name] = lambda *of, way=way, in_blocks=in_blocks: peer.weight_norm(way, *of, SCALE, norm, in_blocks)
    row["error"], row["error_of_one_sign"] = {}, {}
    for name in [name for name in calls if name not in ("factored", "dense")]:
        for field, of in (("error", given), ("error_of_one_sign", of_one_sign(*given))):
            calls[name](*of)
            row[field][name] = error(norm, *of)
    how = timing.rotation(given[0].nbytes)
    sets = [given, *(operands(shape, rank, factor_type) for _ in range(how.sets - 1))]
    for call in calls.values():
        call(*given)
    graphs = {name: timing.capture(lambda i, call=call: call(*sets[i]), how) for name, call in calls.items()}
    row["us"] = {name: round(statistics.median(times), 1)
                 for name, times in sampler.times(graphs, how.launches, SAMPLES).items()}
    row["floors_us"] = {"tensor cores": round(rows * columns * rank / MULTIPLY_ADDS * 1e6, 1),
                        "bytes": round(sum(one.nbytes for one in given) / bandwidth * 1e6, 1)}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--factors", default="bfloat16")
    parser.add_argument("--shapes", nargs="+", metavar="OUTxIN", default=[f"{rows}x{columns}" for rows, columns in SHAPES])
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--json")
    options = parser.parse_args()
    sampler = timing.Sampler()
    bandwidth = sampler.copy_bandwidth()
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "factors": options.factors,
              "bytes_per_second": round(bandwidth), "rows": []}
    with torch.no_grad():
        for shape in [tuple(map(int, text.split("x"))) for text in options.shapes]:
            for rank in options.ranks:
                try:
                    row = measure(shape, rank, getattr(torch, options.factors), sampler, bandwidth)
                except errors.Error as refused:
                    row = {"out": shape[0], "in": shape[1], "rank": rank, "refused": str(refused)}
                report["rows"].append(row)
                print(json.dumps(row), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
