"""Four kernels that are not DoRA, described for dorajit: python kernels.py runs each beside PyTorch."""

import pathlib

import torch

import dorajit

_HERE = pathlib.Path(__file__).parent
_TYPES = {"T": ["float32", "bfloat16", "float16"]}

swiglu = dorajit.Kernel(
    name="swiglu", source=str(_HERE / "swiglu.cu"), entry="swiglu<BLOCK, VEC>",
    arguments=[("gate", "in", "T[n]"), ("up", "in", "T[n]"), ("out", "out", "T[n]"), ("n", "int64")],
    types=_TYPES, parameters={"BLOCK": [64, 128, 256, 512], "VEC": [1, 2, 4, 8]},
    default={"BLOCK": 256, "VEC": 1}, constraint="n % VEC == 0", grid="ceil_div(n, BLOCK * VEC)",
    block="BLOCK", key=["T", "bucket(n)"])

rms_norm = dorajit.Kernel(
    name="rms_norm", source=str(_HERE / "rms_norm.cu"), entry="rms_norm<BLOCK, VEC>",
    arguments=[("x", "in", "T[rows, cols]"), ("weight", "in", "T[cols]"), ("out", "out", "T[rows, cols]"),
               ("cols", "int64"), ("eps", "float32")],
    types=_TYPES, parameters={"BLOCK": [64, 128, 256, 512, 1024], "VEC": [1, 2, 4, 8]},
    default={"BLOCK": 256, "VEC": 1}, constraint="cols % VEC == 0", grid="rows", block="BLOCK",
    key=["T", "bucket(rows)", "cols"], tolerance=1e-5)

transpose = dorajit.Kernel(
    name="transpose", source=str(_HERE / "transpose.cu"), entry="transpose<TILE, ROWS, PAD>",
    arguments=[("x", "in", "T[rows, cols]"), ("out", "out", "T[cols, rows]"), ("rows", "int64"),
               ("cols", "int64")],
    types=_TYPES, parameters={"TILE": [16, 32, 64], "ROWS": [4, 8, 16], "PAD": [0, 1, 2]},
    default={"TILE": 32, "ROWS": 8, "PAD": 1}, grid=["ceil_div(cols, TILE)", "ceil_div(rows, TILE)"],
    block=["TILE", "ROWS"], shared_memory="TILE * (TILE + PAD) * 4", key=["T", "bucket(rows)", "cols"])

conv2d = dorajit.Kernel(
    name="conv2d", source=str(_HERE / "conv2d.cu"), entry="conv2d<TILE_X, TILE_Y, CHANNELS, PIXELS, STAGE>",
    arguments=[("x", "in", "T[n, c, h, w]"), ("weight", "in", "T[k, c, r, s]"), ("y", "out", "T[n, k, oh, ow]"),
               *((name, "int32") for name in ("c", "h", "w", "k", "r", "s", "oh", "ow", "pad"))],
    types=_TYPES,
    parameters={"TILE_X": [8, 16, 32], "TILE_Y": [2, 4, 8], "CHANNELS": [1, 2, 4, 8], "PIXELS": [1, 2, 4],
                "STAGE": [0, 1]},
    default={"TILE_X": 16, "TILE_Y": 8, "CHANNELS": 1, "PIXELS": 1, "STAGE": 0},
    constraint="oh == h + 2 * pad - r + 1 and ow == w + 2 * pad - s + 1",
    grid=["ceil_div(ow, TILE_X * PIXELS)", "ceil_div(oh, TILE_Y)", "n * ceil_div(k, CHANNELS)"],
    block=["TILE_X", "TILE_Y"], shared_memory="STAGE * CHANNELS * r * s * 4")


def run_swiglu(dtype=torch.bfloat16, n=1 << 20):
    gate, up = torch.randn(2, n, device="cuda", dtype=dtype)
    out = torch.empty_like(gate)
    arguments = (gate, up, out, n)
    swiglu(*arguments)
    return swiglu.explain(*arguments), out, torch.nn.functional.silu(gate.float()) * up.float()


def run_rms_norm(dtype=torch.bfloat16, rows=4096, cols=4096, eps=1e-6):
    x = torch.randn(rows, cols, device="cuda", dtype=dtype)
    weight = torch.randn(cols, device="cuda", dtype=dtype)
    out = torch.empty_like(x)
    arguments = (x, weight, out, cols, eps)
    rms_norm(*arguments)
    expected = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps) * weight.float()
    return rms_norm.explain(*arguments), out, expected


def run_transpose(dtype=torch.bfloat16, rows=4096, cols=4093):
    x = torch.randn(rows, cols, device="cuda", dtype=dtype)
    out = torch.empty(cols, rows, device="cuda", dtype=dtype)
    arguments = (x, out, rows, cols)
    transpose(*arguments)
    return transpose.explain(*arguments), out, x.float().t()


def run_conv2d(dtype=torch.float32, n=8, c=32, h=56, w=56, k=64, r=3, s=3, pad=1):
    x = torch.randn(n, c, h, w, device="cuda", dtype=dtype)
    weight = torch.randn(k, c, r, s, device="cuda", dtype=dtype) / (c * r * s) ** 0.5
    oh, ow = h + 2 * pad - r + 1, w + 2 * pad - s + 1
    y = torch.empty(n, k, oh, ow, device="cuda", dtype=dtype)
    arguments = (x, weight, y, c, h, w, k, r, s, oh, ow, pad)
    conv2d(*arguments)
    expected = torch.nn.functional.conv2d(x.double(), weight.double(), padding=pad)
    return conv2d.explain(*arguments), y, expected.float()


EXAMPLES = {"swiglu": run_swiglu, "rms_norm": run_rms_norm, "transpose": run_transpose, "conv2d": run_conv2d}


def largest_error(out, expected):
    """Relative to the root mean square of what is expected."""
    return ((out.float() - expected).abs().max() / expected.square().mean().sqrt()).item()


if __name__ == "__main__":
    for name, run in EXAMPLES.items():
        explanation, out, expected = run()
        print(f"{name}: {explanation['config']} ({explanation['source']}), "
              f"largest error {largest_error(out, expected):.1e}")
