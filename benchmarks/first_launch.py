"""Time from nothing to the first finished compose, in fresh processes, with cold and warm caches.

    python3 first_launch.py --library libdorajit.so.0 [--device cpu|cuda] [--json FILE]

`cold` starts with an empty cache directory and tunes; `warm` is the same call in another process with
what the cold one left. The driver's own start (CUDA context and memory) is timed apart. Needs neither
PyTorch nor NumPy.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROWS, COLS = 512, 4096
CPU, CUDA = 1, 2


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class Statistics(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_int64)
        for name in ("launches", "compilations", "artifact_hits", "builtin_kernels",
                     "tuned_problems", "trials")
    ]


class CudaMemory:
    """A primary context and zeroed device memory, straight from the driver."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.check("cuInit", 0)
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.check("cuCtxSetCurrent", context)

    def check(self, name, *arguments):
        if getattr(self.driver, name)(*arguments) != 0:
            raise RuntimeError(f"{name} failed")

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.check("cuMemsetD8_v2", pointer, 0, ctypes.c_size_t(size))
        return pointer.value

    def synchronize(self):
        self.check("cuCtxSynchronize")


class HostMemory:
    def __init__(self):
        self.kept = []

    def allocate(self, size):
        self.kept.append(ctypes.create_string_buffer(size + 64))
        return (ctypes.addressof(self.kept[-1]) + 63) // 64 * 64

    def synchronize(self):
        pass


def view(address, rows, device_type):
    shape = (ctypes.c_int64 * 2)(rows, COLS)
    return DLTensor(address, device_type, 0, 2, 2, 32, 1, shape, None, 0)


def child(library_path, device):
    """One process: prints its times and what the engine did."""
    start = time.perf_counter()
    memory = CudaMemory() if device == "cuda" else HostMemory()
    addresses = [memory.allocate(ROWS * COLS * 4) for _ in range(4)]
    memory.synchronize()
    driver = time.perf_counter() - start

    start = time.perf_counter()
    library = ctypes.CDLL(library_path)
    library.dorajit_error_message.restype = ctypes.c_char_p
    error, engine = ctypes.c_void_p(), ctypes.c_void_p()

    def check(status):
        if status != 0:
            raise RuntimeError(library.dorajit_error_message(error).decode())

    check(library.dorajit_engine_create(None, ctypes.byref(engine), ctypes.byref(error)))
    kind = CUDA if device == "cuda" else CPU
    lora, base, gain, out = (view(address, 1 if i == 2 else ROWS, kind)
                             for i, address in enumerate(addresses))

    def compose():
        check(library.dorajit_compose(engine, None, ctypes.byref(lora), ctypes.byref(base),
                                      ctypes.byref(gain), ctypes.c_double(0.5), ctypes.byref(out),
                                      ctypes.byref(error)))

    compose()
    memory.synchronize()
    first = time.perf_counter() - start
    counts = Statistics(struct_size=ctypes.sizeof(Statistics))
    check(library.dorajit_engine_statistics(engine, ctypes.byref(counts), ctypes.byref(error)))
    print(json.dumps({"driver_ms": driver * 1e3, "first_launch_ms": first * 1e3,
                      "compilations": counts.compilations, "trials": counts.trials,
                      "artifact_hits": counts.artifact_hits}))


def run_child(arguments, cache):
    environment = dict(os.environ, DORAJIT_CACHE_DIR=cache)
    printed = subprocess.run(
        [sys.executable, __file__, "--child", "--library", arguments.library, "--device",
         arguments.device], env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(printed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments.library, arguments.device)
    cold, warm = [], []
    for _ in range(arguments.repeats):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(run_child(arguments, cache))
            warm.append(run_child(arguments, cache))
    report = {"device": arguments.device, "problem": f"compose f32 {ROWS}x{COLS}",
              "repeats": arguments.repeats, "cold": cold, "warm": warm}
    for name, runs in (("cold", cold), ("warm", warm)):
        print(f"{arguments.device} {name}: first launch "
              f"{statistics.median(r['first_launch_ms'] for r in runs):.1f} ms "
              f"(driver start {statistics.median(r['driver_ms'] for r in runs):.1f} ms apart), "
              f"{runs[0]['compilations']} compilations, {runs[0]['trials']} trials")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
