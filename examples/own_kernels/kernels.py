"""Five kernels that are not DoRA, described for dorajit: python kernels.py runs each beside PyTorch."""

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
    name="rms_norm", source=str(_HERE / "rms_norm.cu"), entry="rms_norm<THREADS, ROWS, VEC, HELD, EARLY>",
    arguments=[("x", "in", "T[rows, cols]"), ("weight", "in", "T[cols]"), ("out", "out", "T[rows, cols]"),
               ("rows", "int64"), ("cols", "int64"), ("eps", "float32")],
    types=_TYPES,
    parameters={"THREADS": [32, 64, 128, 256, 512, 1024], "ROWS": [1, 2], "VEC": [1, 2, 4, 8], "HELD": [1, 2, 4],
                "EARLY": [0, 1]},
    default={"THREADS": 256, "ROWS": 1, "VEC": 1, "HELD": 1, "EARLY": 0},
    constraint="cols % VEC == 0 and THREADS * ROWS <= 1024 and (HELD == 1 or THREADS * VEC * (HELD - 1) < cols)",
    grid="ceil_div(rows, ROWS)", block=["THREADS", "ROWS"], key=["T", "bucket(rows)", "cols"], tolerance=1e-5)

transpose = dorajit.Kernel(
    name="transpose", source=str(_HERE / "transpose.cu"), entry="transpose<ROWS, COLS, BLOCK, VEC, GROUP>",
    arguments=[("x", "in", "T[rows, cols]"), ("out", "out", "T[cols, rows]"), ("rows", "int64"),
               ("cols", "int64")],
    types=_TYPES,
    parameters={"ROWS": [32, 64, 128], "COLS": [32, 64, 128], "BLOCK": [64, 128, 256, 512], "VEC": [1, 2, 4, 8],
                "GROUP": [1, 4]},
    default={"ROWS": 32, "COLS": 32, "BLOCK": 256, "VEC": 1, "GROUP": 1},
    constraint="rows % VEC == 0 and cols % VEC == 0 and ROWS * COLS <= 8192 and "
               "BLOCK * VEC * VEC <= ROWS * COLS and ROWS * COLS <= 64 * BLOCK",
    grid="ceil_div(cols, COLS) * ceil_div(rows, ROWS)", block="BLOCK", key=["T", "bucket(rows)", "cols"])

conv2d = dorajit.Kernel(
    name="conv2d", source=str(_HERE / "conv2d.cu"), entry="conv2d<BLOCK_X, BLOCK_Y, TILE_X, TILE_Y, FILTER>",
    arguments=[("image", "in", "float32[rows, cols]"), ("filter", "in", "float32[size, size]"),
               ("out", "out", "float32[height, width]"), ("height", "int32"), ("width", "int32")],
    parameters={"BLOCK_X": [16, 32, 64, 128], "BLOCK_Y": [1, 2, 4, 8, 16], "TILE_X": [1, 2, 4],
                "TILE_Y": [1, 2, 4, 8], "FILTER": [17]},
    default={"BLOCK_X": 32, "BLOCK_Y": 8, "TILE_X": 1, "TILE_Y": 1, "FILTER": 17},
    constraint="size == FILTER and rows == height + size - 1 and cols == width + size - 1 "
               "and BLOCK_X * BLOCK_Y >= 64 and BLOCK_X * BLOCK_Y <= 1024",
    grid=["ceil_div(width, BLOCK_X * TILE_X)", "ceil_div(height, BLOCK_Y * TILE_Y)"],
    block=["BLOCK_X", "BLOCK_Y"],
    shared_memory="4 * ((BLOCK_X * TILE_X + size - 1) * (BLOCK_Y * TILE_Y + size - 1) + size * size)")

embedding = dorajit.Kernel(
    name="embedding", source=str(_HERE / "embedding.cu"), entry="embedding<THREADS, ROWS, VEC>",
    arguments=[("table", "in", "T[rows, cols]"), ("ids", "in", "I[n]"), ("out", "out", "T[n, cols]"),
               ("n", "int64"), ("cols", "int64")],
    types={**_TYPES, "I": ["int64", "int32"]},
    parameters={"THREADS": [32, 64, 128, 256, 512], "ROWS": [1, 2, 4, 8], "VEC": [1, 2, 4, 8]},
    default={"THREADS": 128, "ROWS": 1, "VEC": 1}, constraint="cols % VEC == 0 and THREADS * ROWS <= 1024",
    grid="ceil_div(n, ROWS)", block=["THREADS", "ROWS"], key=["T", "I", "bucket(n)", "bucket(rows)", "cols"],
    limits={"ids": "rows"})


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
    arguments = (x, weight, out, rows, cols, eps)
    rms_norm(*arguments)
    expected = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps) * weight.float()
    return rms_norm.explain(*arguments), out, expected


def run_transpose(dtype=torch.bfloat16, rows=4096, cols=4092):
    x = torch.randn(rows, cols, device="cuda", dtype=dtype)
    out = torch.empty(cols, rows, device="cuda", dtype=dtype)
    arguments = (x, out, rows, cols)
    transpose(*arguments)
    return transpose.explain(*arguments), out, x.float().t()


def run_conv2d(height=1000, width=1500, size=17):
    image = torch.randn(height + size - 1, width + size - 1, device="cuda")
    weight = torch.randn(size, size, device="cuda") / size
    out = torch.empty(height, width, device="cuda")
    arguments = (image, weight, out, height, width)
    conv2d(*arguments)
    expected = torch.nn.functional.conv2d(image.double()[None, None], weight.double()[None, None])[0, 0]
    return conv2d.explain(*arguments), out, expected.float()


def run_embedding(dtype=torch.bfloat16, id_type=torch.int64, n=8192, rows=32000, cols=4096):
    table = torch.randn(rows, cols, device="cuda", dtype=dtype)
    ids = torch.randint(rows, (n,), device="cuda", dtype=id_type)
    out = torch.empty(n, cols, device="cuda", dtype=dtype)
    arguments = (table, ids, out, n, cols)
    embedding(*arguments)
    return embedding.explain(*arguments), out, torch.nn.functional.embedding(ids, table).float()


EXAMPLES = {"swiglu": run_swiglu, "rms_norm": run_rms_norm, "transpose": run_transpose, "conv2d": run_conv2d,
            "embedding": run_embedding}


def largest_error(out, expected):
    """Relative to the larger of the element and the root mean square of the expected output."""
    size = expected.abs().clamp_min(expected.square().mean().sqrt())
    return ((out.float() - expected).abs() / size).max().item()


if __name__ == "__main__":
    for name, run in EXAMPLES.items():
        explanation, out, expected = run()
        print(f"{name}: {explanation['config']} ({explanation['source']}), "
              f"largest error {largest_error(out, expected):.1e}")
