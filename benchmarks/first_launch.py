"""Time from the start of a process to the first finished compose.

    python3 first_launch.py --library libdorajit.so.0 [--device cpu|cuda] [--json FILE]

`cold` starts with an empty cache folder and tunes; `warm` is the same call in another process
with the cache folder of the cold one; `shipped` starts with an empty cache folder and the tuning data
that came with the library, if there is any for the device. The start of the driver (CUDA context and memory) is
measured separately. Needs neither PyTorch nor NumPy.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import device_memory
import dorajit_c

ROWS, COLS = 512, 4096


def child(library_path, device):
    """One process: prints its times and the engine's counters."""
    start = time.perf_counter()
    memory = device_memory.memory_of(device)
    addresses = [memory.allocate(ROWS * COLS * 4) for _ in range(4)]
    memory.synchronize()
    driver = time.perf_counter() - start

    start = time.perf_counter()
    library = dorajit_c.Dorajit(library_path)
    kind = dorajit_c.CUDA if device == "cuda" else dorajit_c.CPU
    lora, base, gain, out = (
        dorajit_c.raw_view(address, (1 if i == 2 else ROWS, COLS), "float32", kind)
        for i, address in enumerate(addresses))
    library.compose(None, lora, base, gain, 0.5, out)
    memory.synchronize()
    first = time.perf_counter() - start
    counts = library.statistics()
    print(json.dumps({"driver_ms": driver * 1e3, "first_launch_ms": first * 1e3,
                      "compilations": counts.compilations, "trials": counts.trials,
                      "artifact_hits": counts.artifact_hits}))


def run_child(arguments, cache, **settings):
    environment = {**os.environ, "DORAJIT_CACHE_DIR": cache, "DORAJIT_TUNE": "first_use", **settings}
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
    cold, warm, shipped = [], [], []
    for _ in range(arguments.repeats):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(run_child(arguments, cache, DORAJIT_DATABASES="none"))
            warm.append(run_child(arguments, cache, DORAJIT_DATABASES="none"))
        with tempfile.TemporaryDirectory() as cache:
            shipped.append(run_child(arguments, cache))
    report = {"device": arguments.device, "problem": f"compose f32 {ROWS}x{COLS}",
              "repeats": arguments.repeats, "cold": cold, "warm": warm, "shipped": shipped}
    for name, runs in (("cold", cold), ("warm", warm), ("shipped", shipped)):
        print(f"{arguments.device} {name}: first launch "
              f"{statistics.median(r['first_launch_ms'] for r in runs):.1f} ms "
              f"(driver start {statistics.median(r['driver_ms'] for r in runs):.1f} ms apart), "
              f"{runs[0]['compilations']} compilations, {runs[0]['trials']} trials")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
