"""The composition with a fused low-rank product on a GPU, bf16, gain f32, no bias: dorajit's kernel, the two launches
that it replaces (the product by cuBLAS, then compose_residual), torch.addmm as in LoRA, and a copy of the result's
bytes.

    python3 low_rank.py [--json FILE]

The Python package has to be on the path. Device times are medians of interleaved graph replays with a cold L2, in
microseconds (timing.py). The error is the largest of any element against float64, without the rounding of the output,
in units of |s g| (|low| |lora_B|^T).
"""

import argparse
import json
import statistics

import timing
import torch
import torch.nn.functional as F

from dorajit.operations import compositions
from dorajit.operations.table import operations

SHAPES = [(4096, 4096), (4096, 14336), (4096, 12288), (4096, 1024), (1024, 4096), (64, 512), (1, 4096)]
RANKS = [4, 16, 64, 128, 384, 768, 1024]
SCALE = 0.7
SAMPLES = 15
# Multiply-adds per second of the 16-bit tensor cores of an H100 or H200.
MULTIPLY_ADDS = 395e12


def operands(shape, rank):
    tokens, out = shape
    low = torch.randn(tokens, rank, device="cuda").bfloat16()
    b = torch.randn(out, rank, device="cuda").mul_(0.02).bfloat16()
    result = torch.randn(tokens, out, device="cuda").bfloat16()
    gain = torch.randn(out, device="cuda").mul_(0.0015).add_(1)
    return low, b, result, gain, torch.empty_like(result)


def error(low, b, result, gain, out):
    worst = 0.0
    for rows in torch.arange(low.shape[0], device="cuda").split(512):
        of, wide = low[rows].double(), result[rows].double()
        exact = wide + ((gain.double() - 1) * wide + gain.double() * (SCALE * (of @ b.double().T)))
        unit = SCALE * gain.double().abs() * (of.abs() @ b.double().abs().T)
        beyond = (out[rows].double() - exact).abs() - exact.abs() * 2.0 ** -8
        worst = max(worst, (beyond / unit).max().item())
    return max(worst, 0.0)


def kernel(low, b, result, gain, out):
    operations["compose_low_rank"].launch(low, b, result, gain, None, out, None, SCALE)


def pair(low, b, result, gain, _):
    compositions.compose_residual(F.linear(low, b), result, gain, None, SCALE, False, inplace=True)


def addmm(low, b, result, _, out):
    torch.addmm(result, low, b.T, alpha=SCALE, out=out)


def copy(_low, _b, result, _gain, out):
    torch.neg(result, out=out)


def measure(shape, rank, sampler, bandwidth):
    tokens, out = shape
    given = operands(shape, rank)
    row = {"tokens": tokens, "out": out, "rank": rank}
    calls = {"dorajit": kernel, "pair": pair, "addmm": addmm, "copy": copy}
    kernel(*given)
    row["error"] = error(*given)
    how = timing.rotation(sum(one.nbytes for one in given))
    sets = [given, *(operands(shape, rank) for _ in range(how.sets - 1))]
    for call in calls.values():
        call(*given)
    graphs = {name: timing.capture(lambda i, call=call: call(*sets[i]), how) for name, call in calls.items()}
    row["us"] = {name: round(statistics.median(times), 1)
                 for name, times in sampler.times(graphs, how.launches, SAMPLES).items()}
    row["floors_us"] = {"tensor cores": round(tokens * out * rank / MULTIPLY_ADDS * 1e6, 1),
                        "bytes": round(sum(one.nbytes for one in given) / bandwidth * 1e6, 1)}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="measure only the first SHAPES shapes")
    parser.add_argument("--json")
    options = parser.parse_args()
    sampler = timing.Sampler()
    bandwidth = sampler.copy_bandwidth()
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
              "bytes_per_second": round(bandwidth), "rows": []}
    with torch.no_grad():
        for shape in SHAPES[:options.shapes]:
            for rank in RANKS:
                row = measure(shape, rank, sampler, bandwidth)
                report["rows"].append(row)
                print(json.dumps(row), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
