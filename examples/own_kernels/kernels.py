"""Ten kernels that are not DoRA, described for dorajit: python kernels.py runs each beside PyTorch."""

import json
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


layer_norm_backward = dorajit.Kernel(
    name="layer_norm_backward", source=str(_HERE / "layer_norm_backward.cu"),
    arguments=[("d_out", "in", "T[rows, cols]"), ("x", "in", "T[rows, cols]"), ("weight", "in", "T[cols]"),
               ("mean", "in", "float32[rows]"), ("rstd", "in", "float32[rows]"), ("d_x", "out", "T[rows, cols]"),
               ("d_weight", "out", "float32[cols]"), ("d_bias", "out", "float32[cols]"),
               ("partials", "workspace", "float32[1024 * cols]"), ("rows", "int64"), ("cols", "int64")],
    types=_TYPES, parameters={"PARTS": [64, 128, 256, 512], "THREADS": [128, 256, 512, 1024]},
    default={"PARTS": 256, "THREADS": 256},
    launches=[{"entry": "layer_norm_backward<PARTS, THREADS>", "grid": "PARTS", "block": "THREADS",
               "shared_memory": "8 * cols"},
              {"entry": "add_parts<PARTS>", "grid": "ceil_div(cols, 32)", "block": [32, 16]}],
    key=["T", "bucket(rows)", "cols"], tolerance=1e-3)

total = dorajit.Kernel(
    name="total", source=str(_HERE / "total.cu"),
    arguments=[("x", "in", "T[n]"), ("out", "out", "float32[1]"), ("partials", "workspace", "float32[2048]"),
               ("n", "int64")],
    types=_TYPES, parameters={"PER_SM": [1, 2, 4, 8], "THREADS": [128, 256, 512], "VEC": [1, 2, 4, 8]},
    default={"PER_SM": 1, "THREADS": 256, "VEC": 1}, constraint="n % VEC == 0 and PER_SM * multiprocessors <= 2048",
    launches=[{"entry": "add_shares<THREADS, VEC>", "grid": "PER_SM * multiprocessors", "block": "THREADS"},
              {"entry": "add_partials", "grid": 1, "block": 256}],
    key=["T", "bucket(n)"], tolerance=1e-3)

argmax = dorajit.Kernel(
    name="argmax", source=str(_HERE / "argmax.cu"), entry="argmax<THREADS, VEC>",
    arguments=[("x", "in", "T[rows:row_stride, cols]"), ("out", "out", "int64[rows]"), ("rows", "int64"),
               ("cols", "int64"), ("row_stride", "int64")],
    types=_TYPES, parameters={"THREADS": [32, 64, 128, 256, 512, 1024], "VEC": [1, 2, 4, 8]},
    default={"THREADS": 256, "VEC": 1}, constraint="cols % VEC == 0", grid="rows", block="THREADS",
    key=["T", "bucket(rows)", "cols"])

int4_gemv = dorajit.Kernel(
    name="int4_gemv", source=str(_HERE / "int4_gemv.cu"), entry="int4_gemv<WARPS, ROWS, GROUP>",
    arguments=[("packed", "in", "uint8[rows, cols / 2]"), ("scales", "in", "T[rows, cols / 128]"),
               ("x", "in", "T[cols]"), ("y", "out", "T[rows]"), ("rows", "int64"), ("cols", "int64")],
    types=_TYPES, parameters={"WARPS": [1, 2, 4, 8], "ROWS": [1, 2, 4], "GROUP": [128]},
    default={"WARPS": 4, "ROWS": 1, "GROUP": 128}, constraint="cols % GROUP == 0",
    grid="ceil_div(rows, WARPS * ROWS)", block=[32, "WARPS"], tolerance=1e-3)

# Its description is a file, as C and C++ take it.
matmul = dorajit.Kernel(**{**json.loads((_HERE / "matmul.json").read_text()), "source": str(_HERE / "matmul.cu")})


# The arguments of a call, its outputs among them, and what PyTorch computes in float32 or wider.

def swiglu_case(dtype=torch.bfloat16, n=1 << 20):
    gate, up = torch.randn(2, n, device="cuda").to(dtype)
    out = torch.empty_like(gate)
    return (gate, up, out, n), [out], [torch.nn.functional.silu(gate.float()) * up.float()]


def rms_norm_case(dtype=torch.bfloat16, rows=4096, cols=4096, eps=1e-6):
    x, weight = torch.randn(rows, cols, device="cuda").to(dtype), torch.randn(cols, device="cuda").to(dtype)
    out = torch.empty_like(x)
    expected = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps) * weight.float()
    return (x, weight, out, rows, cols, eps), [out], [expected]


def transpose_case(dtype=torch.bfloat16, rows=4096, cols=4092):
    x, out = torch.randn(rows, cols, device="cuda").to(dtype), torch.empty(cols, rows, device="cuda", dtype=dtype)
    return (x, out, rows, cols), [out], [x.float().t()]


def conv2d_case(height=1000, width=1500, size=17):
    image = torch.randn(height + size - 1, width + size - 1, device="cuda")
    weight = torch.randn(size, size, device="cuda") / size
    out = torch.empty(height, width, device="cuda")
    expected = torch.nn.functional.conv2d(image.double()[None, None], weight.double()[None, None])[0, 0]
    return (image, weight, out, height, width), [out], [expected.float()]


def embedding_case(dtype=torch.bfloat16, id_type=torch.int64, n=8192, rows=32000, cols=4096):
    table = torch.randn(rows, cols, device="cuda").to(dtype)
    ids = torch.randint(rows, (n,), device="cuda", dtype=id_type)
    out = torch.empty(n, cols, device="cuda", dtype=dtype)
    return (table, ids, out, n, cols), [out], [torch.nn.functional.embedding(ids, table).float()]


def layer_norm_backward_case(dtype=torch.bfloat16, rows=4096, cols=4096):
    d_out, x = torch.randn(2, rows, cols, device="cuda").to(dtype)
    weight = torch.randn(cols, device="cuda").to(dtype)
    wide = [one.float().requires_grad_() for one in (x, weight, torch.zeros_like(weight))]
    torch.nn.functional.layer_norm(wide[0], (cols,), *wide[1:]).backward(d_out.float())
    mean, rstd = x.float().mean(-1), (x.float().var(-1, correction=0) + 1e-5).rsqrt()
    outs = [torch.empty_like(x), *torch.empty(2, cols, device="cuda")]
    return (d_out, x, weight, mean, rstd, *outs, rows, cols), outs, [one.grad for one in wide]


def total_case(dtype=torch.bfloat16, n=1 << 24):
    x, out = torch.rand(n, device="cuda").to(dtype), torch.empty(1, device="cuda")
    return (x, out, n), [out], [x.double().sum()[None].float()]


def argmax_case(dtype=torch.bfloat16, rows=1024, cols=32000, padding=256):
    x = torch.randn(rows, cols + padding, device="cuda").to(dtype)[:, :cols]
    out = torch.empty(rows, device="cuda", dtype=torch.int64)
    first = (x == x.amax(-1, keepdim=True)).int().argmax(-1)  # PyTorch's own takes any of equal elements
    return (x, out, rows, cols, x.stride(0)), [out], [first.float()]


def int4_gemv_case(dtype=torch.bfloat16, rows=4096, cols=4096, group=128):
    packed = torch.randint(256, (rows, cols // 2), device="cuda", dtype=torch.uint8)
    scales, x = torch.rand(rows, cols // group, device="cuda").to(dtype), torch.randn(cols, device="cuda").to(dtype)
    out = torch.empty(rows, device="cuda", dtype=dtype)
    weight = torch.stack((packed & 15, packed >> 4), -1).view(rows, -1, group).double() - 8
    expected = (weight * scales[..., None].double()).view(rows, cols) @ x.double()
    return (packed, scales, x, out, rows, cols), [out], [expected.float()]


def matmul_case(dtype=torch.bfloat16, m=4096, n=4096, k=4096):
    """Needs a GPU of compute capability 9.0."""
    a, b = torch.randn(m, k, device="cuda").to(dtype), torch.randn(n, k, device="cuda").to(dtype)
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    return (a, b, out, m, n, k), [out], [a.float() @ b.float().t()]


EXAMPLES = {kernel.name: (kernel, globals()[kernel.name + "_case"]) for kernel in (
    swiglu, rms_norm, transpose, conv2d, embedding, layer_norm_backward, total, argmax, int4_gemv, matmul)}


def largest_error(outs, expected):
    """Relative to the larger of the element and the root mean square of the expected output."""
    def of(out, expected):
        size = expected.abs().clamp_min(expected.square().mean().sqrt())
        return ((out.float() - expected).abs() / size).max().item()
    return max(map(of, outs, expected))


def run(name, **sizes):
    """What `explain` says of the call, and its largest error."""
    kernel, case = EXAMPLES[name]
    arguments, outs, expected = case(**sizes)
    kernel(*arguments)
    return kernel.explain(*arguments), largest_error(outs, expected)


if __name__ == "__main__":
    for name in EXAMPLES:
        if name != "matmul" or torch.cuda.get_device_capability() == (9, 0):
            explanation, error = run(name)
            print(f"{name}: {explanation['config']} ({explanation['source']}), largest error {error:.1e}")
