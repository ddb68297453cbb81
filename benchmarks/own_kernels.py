"""The kernels of examples/own_kernels beside Triton's autotuned equivalents and torch.compile.

    PYTHONPATH=build/release/bindings/python python3 own_kernels.py [--only NAME ...] [--json FILE]

Needs a GPU and Triton. For each kernel and shape: the time of the config that dorajit found and how long it took to
find it; the time of each config of the whole space ("exhaustive": each by a kernel of its own that has this config
alone, compiled and measured in this process, one after the other); of the Triton kernel with the best of its configs
by triton.autotune; and of PyTorch's expression under torch.compile. Times are medians of interleaved replays of CUDA
graphs with a cold L2; all contenders of a shape are in one run. Each result is compared with PyTorch's in float32
first. Host times are those of calls from Python that do not wait for the GPU.
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

def swiglu(n, dtype):
    gate, up = torch.randn(2, n, device="cuda").to(dtype)
    out = torch.empty_like(gate)
    expression = torch.compile(lambda gate, up: torch.nn.functional.silu(gate) * up)
    return {"arguments": (gate, up, out, n), "out": out, "inputs": (gate, up), "expression": expression,
            "triton": lambda: _swiglu[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](gate, up, out, n),
            "expected": torch.nn.functional.silu(gate.float()) * up.float()}


def rms_norm(rows, cols, dtype, eps=1e-6):
    x, weight = torch.randn(rows, cols, device="cuda").to(dtype), torch.randn(cols, device="cuda").to(dtype)
    out = torch.empty_like(x)
    norm = torch.compile(lambda x, weight: torch.nn.functional.rms_norm(x, (cols,), weight, eps))
    return {"arguments": (x, weight, out, rows, cols, eps), "out": out, "inputs": (x, weight), "expression": norm,
            "triton": lambda: _rms_norm[(rows,)](x, weight, out, cols, eps, BLOCK=triton.next_power_of_2(cols)),
            "expected": torch.nn.functional.rms_norm(x.float(), (cols,), weight.float(), eps)}


def transpose(rows, cols, dtype):
    x = torch.randn(rows, cols, device="cuda").to(dtype)
    out = torch.empty(cols, rows, device="cuda", dtype=dtype)
    grid = lambda meta: (triton.cdiv(cols, meta["COLS"]), triton.cdiv(rows, meta["ROWS"]))
    return {"arguments": (x, out, rows, cols), "out": out, "inputs": (x,),
            "expression": torch.compile(lambda x: x.t().contiguous()),
            "triton": lambda: _transpose[grid](x, out, rows, cols), "expected": x.float().t()}


def conv2d(height, width, size=17):
    image = torch.randn(height + size - 1, width + size - 1, device="cuda")
    weight = torch.randn(size, size, device="cuda") / size
    out = torch.empty(height, width, device="cuda")
    grid = lambda meta: (triton.cdiv(width, meta["COLS"]), triton.cdiv(height, meta["ROWS"]))
    convolve = lambda image, weight: torch.nn.functional.conv2d(image[None, None], weight[None, None])[0, 0]
    return {"arguments": (image, weight, out, height, width), "out": out, "inputs": (image, weight),
            "expression": torch.compile(convolve),
            "triton": lambda: _conv2d[grid](image, weight, out, height, width, FILTER=size),
            "expected": convolve(image.double(), weight.double()).float()}


CASES = {
    "swiglu": [(swiglu, (4096 * 14336, torch.bfloat16)), (swiglu, (512 * 14336, torch.bfloat16)),
               (swiglu, (1 << 16, torch.float32))],
    "rms_norm": [(rms_norm, (4096, 4096, torch.bfloat16)), (rms_norm, (8192, 8192, torch.float32)),
                 (rms_norm, (64, 2048, torch.bfloat16))],
    "transpose": [(transpose, (8192, 8192, torch.bfloat16)), (transpose, (4096, 14336, torch.float32)),
                  (transpose, (1024, 1024, torch.bfloat16))],
    "conv2d": [(conv2d, (4096, 4096)), (conv2d, (1024, 1024))],
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


def every_config(kernel, case, flush, limit_s):
    """Microseconds of each config that is fit for the case, by text; the seconds that took; how many were left out."""
    description = json.loads(kernel.to_json())
    # Another source, so that no config is compiled already.
    description["source"] += f"\n// {random.random()}\n"
    began, found, left = time.perf_counter(), {}, 0
    for config in configs(description["parameters"]):
        if time.perf_counter() - began > limit_s:
            left += 1
            continue
        one = dorajit.Kernel.from_json(json.dumps({
            **description, "parameters": {name: [value] for name, value in config.items()}, "default": config}))
        try:
            with dorajit.tuning("off"):
                graph = captured(lambda: one(*case["arguments"]))
        except dorajit.Error:  # not fit for these sizes
            continue
        found[text(config)] = medians({"it": graph}, flush, 15)["it"]
    return found, time.perf_counter() - began, left


def measure(name, make, shape, flush, options):
    case = make(*shape)
    kernel = getattr(own, name)
    began = time.perf_counter()
    kernel(*case["arguments"])
    torch.cuda.synchronize()
    tuned_s = time.perf_counter() - began
    tolerance = 2.0 ** -6 if case["out"].dtype is torch.bfloat16 else 1e-4
    contenders = {"dorajit": lambda: kernel(*case["arguments"]), "triton": case["triton"],
                  "compile": lambda: case["expression"](*case["inputs"])}
    graphs = {}
    for who, run in contenders.items():
        case["out"].fill_(float("nan"))
        made = run()
        torch.cuda.synchronize()
        error = own.largest_error(made if made is not None and who == "compile" else case["out"], case["expected"])
        # PyTorch multiplies float32 in convolutions as TF32.
        if not error < (5e-3 if who == "compile" and name == "conv2d" else tolerance):
            raise SystemExit(f"{name} {shape}: {who} is off by {error:.1e}")
        graphs[who] = captured(run)
    exhaustive, exhaustive_s, left = every_config(kernel, case, flush, options.exhaustive_seconds)
    best = sorted(exhaustive, key=exhaustive.get)[:3]
    description = json.loads(kernel.to_json())
    explained = kernel.explain(*case["arguments"])
    for config in configs(description["parameters"]):
        if text(config) in best:
            one = dorajit.Kernel.from_json(json.dumps({
                **description, "parameters": {key: [value] for key, value in config.items()}, "default": config}))
            with dorajit.tuning("off"):
                graphs[text(config)] = captured(lambda one=one: one(*case["arguments"]))
    times = medians(graphs, flush, options.rounds)
    fastest = min(times[one] for one in best)
    row = {"kernel": name, "shape": [str(one) for one in shape], "config": explained["config"],
           "us": times["dorajit"], "triton_us": times["triton"], "compile_us": times["compile"],
           "best_us": fastest, "best": min(best, key=times.get), "configs": len(exhaustive), "not_measured": left,
           "tuned_s": tuned_s, "exhaustive_s": exhaustive_s, "host_us": host_times(contenders["dorajit"])}
    print(f"{name} {'x'.join(row['shape'])}: {row['us']:.1f} us by {row['config']}, found in {tuned_s:.1f} s; best of "
          f"{row['configs']} {fastest:.1f} ({row['best']}), {exhaustive_s:.0f} s; Triton {row['triton_us']:.1f}, "
          f"torch.compile {row['compile_us']:.1f}; over best {row['us'] / fastest:.3f}, over Triton "
          f"{row['us'] / row['triton_us']:.3f}, over compile {row['us'] / row['compile_us']:.3f}; host least "
          f"{row['host_us']['least']:.1f}, median {row['host_us']['median']:.1f}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--exhaustive-seconds", type=float, default=60, help="a shape's limit")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    flush = Flush()
    rows = [measure(name, make, shape, flush, options) for name in options.only for make, shape in CASES[name]]
    report.write(options.json, {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                                "triton": triton.__version__, "torch_add_host_us": torch_add_host_times()}, rows)


if __name__ == "__main__":
    main()
