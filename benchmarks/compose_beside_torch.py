"""Device time of compose beside torch.add of the same size, in one run on one GPU.

    python3 compose_beside_torch.py --library libdorajit.so.0 [--json FILE] [--shapes 8192x8192,...]

Needs PyTorch with CUDA. Times are medians of interleaved samples by CUDA events; operand sets are
rotated so that none is found in the L2 cache. compose and add move the same bytes (two matrices read,
one written; compose's gain vector is counted on top).
"""

import argparse
import ctypes
import json
import random
import statistics
import time

import torch


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int), ("device_id", ctypes.c_int)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DTYPES = {
    torch.float32: DLDataType(2, 32, 1),
    torch.float16: DLDataType(2, 16, 1),
    torch.bfloat16: DLDataType(4, 16, 1),
}
CUDA = 2


class Dorajit:
    """The C interface, as far as this program needs it."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.dorajit_error_message.restype = ctypes.c_char_p
        self.engine = ctypes.c_void_p()
        self.check(self.library.dorajit_engine_create, None, ctypes.byref(self.engine))

    def check(self, function, *arguments):
        error = ctypes.c_void_p()
        if function(*arguments, ctypes.byref(error)) != 0:
            raise RuntimeError(self.library.dorajit_error_message(error).decode())

    @staticmethod
    def view(tensor):
        shape = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
        return DLTensor(tensor.data_ptr(), DLDevice(CUDA, tensor.device.index or 0), tensor.dim(),
                        DTYPES[tensor.dtype], shape, None, 0)

    def compose(self, views, scale):
        lora, base, gain, out = views
        self.check(self.library.dorajit_compose, self.engine,
                   ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), ctypes.byref(lora),
                   ctypes.byref(base), ctypes.byref(gain), ctypes.c_double(scale),
                   ctypes.byref(out))


def sample(work, sets, repeats):
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for repeat in range(repeats):
        work(repeat % sets)
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) * 1e3 / repeats


def measure(dorajit, rows, cols, dtype, gain_dtype, samples):
    matrix_bytes = rows * cols * dtype.itemsize
    sets = max(2, -(-3 * 64 * 2**20 // (3 * matrix_bytes)) + 1)
    tensors = []
    for _ in range(sets):
        lora, base, out = (torch.randn(rows, cols, device="cuda").to(dtype) for _ in range(3))
        gain = (1 + 0.0015 * torch.randn(cols, device="cuda")).to(gain_dtype)
        tensors.append((lora, base, gain, out))
    views = [[dorajit.view(t) for t in one] for one in tensors]
    start = time.perf_counter()
    dorajit.compose(views[0], 0.5)
    torch.cuda.synchronize()
    first_call = time.perf_counter() - start
    lora, base, gain, out = tensors[0]
    eager = (gain.float() - 1) * base.float() + gain.float() * (0.5 * lora.float())
    exact = torch.equal(eager.to(dtype), out)

    works = {
        "compose": lambda i: dorajit.compose(views[i], 0.5),
        "torch_add": lambda i: torch.add(tensors[i][0], tensors[i][1], out=tensors[i][3]),
        "torch_eager": lambda i: (tensors[i][2] - 1) * tensors[i][1]
        + tensors[i][2] * (0.5 * tensors[i][0]),
    }
    repeats = max(2 * sets, 4) if matrix_bytes < 2**27 else 4
    times = {name: [] for name in works}
    for work in works.values():
        sample(work, sets, repeats)
    for _ in range(samples):
        for name in random.sample(list(works), len(works)):
            times[name].append(sample(works[name], sets, repeats))
    medians = {name: statistics.median(values) for name, values in times.items()}
    spread = {name: statistics.quantiles(values, n=4) for name, values in times.items()}
    moved = 3 * matrix_bytes + cols * gain_dtype.itemsize
    return {
        "rows": rows, "cols": cols, "dtype": str(dtype), "gain_dtype": str(gain_dtype),
        "median_us": medians, "quartiles_us": spread, "samples": samples,
        "first_call_s": first_call, "bits_equal_eager_fp32_rounded_once": exact,
        "compose_GBps": moved / medians["compose"] / 1e3,
        "add_over_compose": medians["torch_add"] / medians["compose"],
        "eager_over_compose": medians["torch_eager"] / medians["compose"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--shapes", default="2048x4096,8192x8192,32768x8192")
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    dorajit = Dorajit(arguments.library)
    results = []
    print(f"{'shape':>12} {'type':>9} {'gain':>9} {'compose us':>11} {'add us':>9} {'eager us':>9} "
          f"{'add/compose':>11} {'GB/s':>7} exact")
    for shape in arguments.shapes.split(","):
        rows, cols = map(int, shape.split("x"))
        for dtype, gain_dtype in ((torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32),
                                  (torch.float16, torch.float16), (torch.float32, torch.float32)):
            one = measure(dorajit, rows, cols, dtype, gain_dtype, arguments.samples)
            results.append(one)
            us = one["median_us"]
            print(f"{shape:>12} {str(dtype)[6:]:>9} {str(gain_dtype)[6:]:>9} {us['compose']:>11.2f} "
                  f"{us['torch_add']:>9.2f} {us['torch_eager']:>9.2f} "
                  f"{one['add_over_compose']:>11.3f} {one['compose_GBps']:>7.0f} "
                  f"{one['bits_equal_eager_fp32_rounded_once']}", flush=True)
            torch.cuda.empty_cache()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
