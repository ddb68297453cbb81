"""The kernels of examples/own_kernels beside Triton's autotuned equivalents and torch.compile.

    PYTHONPATH=build/release/bindings/python python3 own_kernels.py [--only NAME ...] [--json FILE]

Needs a GPU and Triton. For each kernel and shape: the time of the config that dorajit found and how long it took to
find it; the time of each config of the whole space ("exhaustive": each by a kernel of its own that has this config
alone, compiled and measured in this process, one after the other); of the Triton kernel with the best of its configs
by triton.autotune, where there is one; and of PyTorch's expression under torch.compile (matmul: cuBLAS). Times are
medians of interleaved replays of CUDA graphs with a cold L2; all contenders of a shape are in one run. Each result is
compared with PyTorch's in float32 first. Host times are those of calls from Python that do not wait for the GPU.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import time

import torch
import triton
import triton.language as tl

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples" / "own_kernels"))

import dorajit
import kernels as own
import report


# --- Triton's equivalents ------------------------------------------------------------------------

@triton.autotune([triton.Config({"BLOCK": block}, num_warps=warps)
                  for block in (256, 512, 1024, 2048, 4096, 8192) for warps in (2, 4, 8, 16)], key=["n"])
@triton.jit
def _swiglu(gate, up, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    g = tl.load(gate + at, mask=inside).to(tl.float32)
    u = tl.load(up + at, mask=inside).to(tl.float32)
    tl.store(out + at, (g / (1.0 + tl.exp(-g)) * u).to(out.dtype.element_ty), mask=inside)


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 2, 4, 8, 16, 32)], key=["cols"])
@triton.jit
def _rms_norm(x, weight, out, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    at = tl.arange(0, BLOCK)
    inside = at < cols
    values = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    weights = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(values * values) / cols + eps)
    tl.store(out + row + at, (values * factor * weights).to(out.dtype.element_ty), mask=inside)


@triton.autotune([triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
                  for rows in (32, 64, 128) for cols in (32, 64, 128) for warps in (2, 4, 8)], key=["rows", "cols"])
@triton.jit
def _transpose(x, out, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    i = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)
    tile = tl.load(x + i[:, None] * cols + j[None, :], mask=(i[:, None] < rows) & (j[None, :] < cols))
    tl.store(out + j[:, None] * rows + i[None, :], tl.trans(tile), mask=(j[:, None] < cols) & (i[None, :] < rows))


@triton.autotune([triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
                  for rows in (8, 16, 32, 64) for cols in (32, 64, 128) for warps in (2, 4, 8)],
                 key=["height", "width"])
@triton.jit
def _conv2d(image, weight, out, height, width, FILTER: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = (i[:, None] < height) & (j[None, :] < width)
    columns = width + FILTER - 1
    at = image + i[:, None] * columns + j[None, :]
    total = tl.zeros((ROWS, COLS), tl.float32)
    for a in range(FILTER):
        for b in tl.static_range(FILTER):
            total += tl.load(at + a * columns + b, mask=inside, other=0.0) * tl.load(weight + a * FILTER + b)
    tl.store(out + i[:, None] * width + j[None, :], total, mask=inside)


# --- cases ---------------------------------------------------------------------------------------

# Each takes the arguments of the kernel, whose outputs are among them; what it returns is not always the kernel's memory.

def swiglu(gate, up, out, n):
    return {"triton": lambda: _swiglu[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](gate, up, out, n),
            "compile": torch.compile(lambda: torch.nn.functional.silu(gate) * up)}


def rms_norm(x, weight, out, rows, cols, eps):
    return {"triton": lambda: _rms_norm[(rows,)](x, weight, out, cols, eps, BLOCK=triton.next_power_of_2(cols)),
            "compile": torch.compile(lambda: torch.nn.functional.rms_norm(x, (cols,), weight, eps))}


def transpose(x, out, rows, cols):
    grid = lambda meta: (triton.cdiv(cols, meta["COLS"]), triton.cdiv(rows, meta["ROWS"]))
    return {"triton": lambda: _transpose[grid](x, out, rows, cols), "compile": torch.compile(lambda: x.t().contiguous())}


def conv2d(image, weight, out, height, width):
    grid = lambda meta: (triton.cdiv(width, meta["COLS"]), triton.cdiv(height, meta["ROWS"]))
    return {"triton": lambda: _conv2d[grid](image, weight, out, height, width, FILTER=weight.shape[0]),
            "compile": torch.compile(lambda: torch.nn.functional.conv2d(image[None, None], weight[None, None])[0, 0])}


def layer_norm_backward(d_out, x, weight, mean, rstd, d_x, d_weight, d_bias, rows, cols):
    bias = torch.zeros_like(weight)
    return {"compile": torch.compile(lambda: torch.ops.aten.native_layer_norm_backward(
        d_out, x, (cols,), mean[:, None], rstd[:, None], weight, bias, [True] * 3))}


def total(x, out, n):
    return {"compile": torch.compile(lambda: x.sum(dtype=torch.float32)[None])}


def argmax(x, out, rows, cols, row_stride):
    return {"compile": torch.compile(lambda: x.argmax(-1))}


def int4_gemv(packed, scales, x, out, rows, cols):
    def product():
        codes = torch.stack((packed & 15, packed >> 4), -1).view(rows, scales.shape[1], -1).to(x.dtype) - 8
        return (codes * scales[..., None]).view(rows, cols) @ x
    return {"compile": torch.compile(product)}


def matmul(a, b, out, m, n, k):
    return {"compile": lambda: a @ b.t()}  # cuBLAS


_BF16, _F32 = {"dtype": torch.bfloat16}, {"dtype": torch.float32}
CASES = {
    swiglu: [{"n": 4096 * 14336, **_BF16}, {"n": 512 * 14336, **_BF16}, {"n": 1 << 16, **_F32}],
    rms_norm: [{"rows": 4096, "cols": 4096, **_BF16}, {"rows": 8192, "cols": 8192, **_F32},
               {"rows": 64, "cols": 2048, **_BF16}],
    transpose: [{"rows": 8192, "cols": 8192, **_BF16}, {"rows": 4096, "cols": 14336, **_F32},
                {"rows": 1024, "cols": 1024, **_BF16}],
    conv2d: [{"height": 4096, "width": 4096}, {"height": 1024, "width": 1024}],
    layer_norm_backward: [{"rows": 4096, "cols": 4096, **_BF16}, {"rows": 16384, "cols": 1024, **_BF16}],
    total: [{"n": 1 << 26, **_BF16}, {"n": 1 << 20, **_F32}],
    argmax: [{"rows": 1024, "cols": 32000, **_BF16}, {"rows": 8, "cols": 128256, **_F32}],
    int4_gemv: [{"rows": 4096, "cols": 4096, **_BF16}, {"rows": 14336, "cols": 4096, **_BF16}],
    matmul: [{"m": 4096, "n": 4096, "k": 4096, **_BF16}, {"m": 8192, "n": 4096, "k": 14336, **_BF16}],
}


# --- measurement ---------------------------------------------------------------------------------

class Flush:
    """Writes twice the L2, so that what is timed next finds nothing of its own there."""

    def __init__(self):
        size = torch.cuda.get_device_properties("cuda").L2_cache_size * 2
        self.memory = torch.empty(size, dtype=torch.int8, device="cuda")

    def __call__(self):
        self.memory.zero_()


def captured(run):
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def medians(graphs, flush, rounds):
    """Microseconds of each, by turns in random order."""
    times = {who: [] for who in graphs}
    for _ in range(rounds):
        for who in random.sample(list(graphs), len(graphs)):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush()
            begin.record()
            graphs[who].replay()
            end.record()
            end.synchronize()
            times[who].append(1e3 * begin.elapsed_time(end))
    return {who: statistics.median(some) for who, some in times.items()}


def configs(parameters):
    made = [{}]
    for name, values in parameters.items():
        made = [{**one, name: value} for one in made for value in values]
    return made


def text(config):
    return "-".join(f"{name}={value}" for name, value in config.items())


def host_times(run, calls=2000):
    """The least and the median of the microseconds that a call takes the host, while the GPU keeps up."""
    run()
    torch.cuda.synchronize()
    times = []
    for i in range(calls):
        began = time.perf_counter()
        run()
        times.append(1e6 * (time.perf_counter() - began))
        if i % 50 == 49:
            torch.cuda.synchronize()
    return {"least": min(times), "median": statistics.median(times)}


def torch_add_host_times():
    a, b, out = torch.randn(3, 1 << 12, device="cuda")
    return host_times(lambda: torch.add(a, b, out=out))


def pinned(description, config, arguments):
    one = dorajit.Kernel.from_json(json.dumps({
        **description, "parameters": {name: [value] for name, value in config.items()}, "default": config}))
    with dorajit.tuning("off"):
        return captured(lambda: one(*arguments))


def every_config(kernel, arguments, flush, limit_s):
    """Microseconds of each config that is fit for the case, by text; the seconds that took; how many were left out."""
    description = json.loads(kernel.to_json())
    # Another source, so that no config is compiled already.
    description["source"] += f"\n// {random.random()}\n"
    began, found, left = time.perf_counter(), {}, 0
    for config in configs(description["parameters"]):
        if time.perf_counter() - began > limit_s:
            left += 1
            continue
        try:
            graph = pinned(description, config, arguments)
        except dorajit.Error:  # not fit for these sizes
            continue
        found[text(config)] = medians({"it": graph}, flush, 15)["it"]
    return found, time.perf_counter() - began, left


def measure(make, shape, flush, options):
    name = make.__name__
    kernel, case = own.EXAMPLES[name]
    arguments, outs, expected = case(**shape)
    peers = make(*arguments)
    began = time.perf_counter()
    kernel(*arguments)
    torch.cuda.synchronize()
    tuned_s = time.perf_counter() - began
    tolerance = 2.0 ** -6 if shape.get("dtype") is torch.bfloat16 else 1e-4
    contenders = {"dorajit": lambda: kernel(*arguments), **peers}
    graphs = {}
    for who, run in contenders.items():
        for out in outs:
            out.fill_(float("nan") if out.is_floating_point() else -1)
        made = run()
        torch.cuda.synchronize()
        made = outs if who != "compile" else [made] if isinstance(made, torch.Tensor) else made
        error = own.largest_error(made, expected)
        # PyTorch multiplies float32 in convolutions as TF32.
        if not error < (5e-3 if who == "compile" and name == "conv2d" else tolerance):
            raise SystemExit(f"{name} {shape}: {who} is off by {error:.1e}")
        graphs[who] = captured(run)
    exhaustive, exhaustive_s, left = every_config(kernel, arguments, flush, options.exhaustive_seconds)
    best = sorted(exhaustive, key=exhaustive.get)[:3]
    description = json.loads(kernel.to_json())
    explained = kernel.explain(*arguments)
    for config in configs(description["parameters"]):
        if text(config) in best:
            graphs[text(config)] = pinned(description, config, arguments)
    times = medians(graphs, flush, options.rounds)
    fastest = min(times[one] for one in best)
    sizes = "x".join(str(one) for one in shape.values() if isinstance(one, int))
    row = {"kernel": name, "shape": sizes, "type": str(shape.get("dtype", torch.float32)).removeprefix("torch."),
           "config": explained["config"], "us": times["dorajit"], "triton_us": times.get("triton"),
           "compile_us": times["compile"], "best_us": fastest, "best": min(best, key=times.get),
           "configs": len(exhaustive), "not_measured": left, "tuned_s": tuned_s, "exhaustive_s": exhaustive_s,
           "host_us": host_times(contenders["dorajit"])}
    triton_said = f"Triton {times['triton']:.1f}, over Triton {row['us'] / times['triton']:.3f}, " if "triton" in times else ""
    print(f"{name} {sizes}: {row['us']:.1f} us by {row['config']}, found in {tuned_s:.1f} s; best of "
          f"{row['configs']} {fastest:.1f} ({row['best']}), {exhaustive_s:.0f} s; {triton_said}"
          f"torch.compile {row['compile_us']:.1f}; over best {row['us'] / fastest:.3f}, "
          f"over compile {row['us'] / row['compile_us']:.3f}; host least "
          f"{row['host_us']['least']:.1f}, median {row['host_us']['median']:.1f}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[case.__name__ for case in CASES])
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--exhaustive-seconds", type=float, default=60, help="a shape's limit")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    flush = Flush()
    rows = [measure(make, shape, flush, options) for make, shapes in CASES.items() for shape in shapes
            if not options.only or make.__name__ in options.only]
    report.write(options.json, {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                                "triton": triton.__version__, "torch_add_host_us": torch_add_host_times()}, rows)


if __name__ == "__main__":
    main()
