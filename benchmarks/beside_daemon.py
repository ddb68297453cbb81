"""How much the daemon slows down its clients: compose in a loop, while the daemon tunes and while it does not.

    python3 beside_daemon.py --library libdorajit.so.0 --bin DIR [--device cpu|cuda] [--json FILE]

`--bin` is the folder of dorajit and dorajitd. The daemon has its own cache and socket folders and
is asked for many problems of the same device at once. Times of this process's calls are compared
over alternating phases, without tuning (the daemon is stopped) and with it; each call waits
for its result. The bits of the result are compared after every batch, also when the daemon's winner
replaces the config. Batches are long, so that the device is busy for most of the time.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import tempfile
import time

import device_memory
import dorajit_c

ROWS, COLS = 2048, 4096
BATCH = 1000
# The largest bucket of the queue's problems; the queue must not run empty.
QUEUED = [(cols, bucket) for cols in range(512, 8193, 256) for bucket in (8, 10)]


class Daemon:
    """dorajitd with its own folders, and a connection to it."""

    def __init__(self, arguments, folder):
        programs = pathlib.Path(arguments.bin)
        environment = dict(os.environ)
        self.process = subprocess.Popen(
            [programs / "dorajitd", "--foreground", "--duty", str(arguments.duty), "--busy-duty",
             str(arguments.busy_duty)], env=environment)
        path = f"{folder}/dorajitd.sock"
        self.socket = socket.socket(socket.AF_UNIX)
        for _ in range(500):
            try:
                self.socket.connect(path)
                break
            except OSError:
                time.sleep(0.02)
        self.lines = self.socket.makefile("r", encoding="utf-8")
        version = subprocess.run([programs / "dorajit", "--version"], check=True, text=True,
                                 capture_output=True).stdout.split()[-1]
        self.hello = self.ask({"type": "hello", "protocol": 1, "release": version,
                               "tuning_dir": environment["DORAJIT_CACHE_DIR"]}, "hello")
        listed = subprocess.run([programs / "dorajit", "doctor", "--json"], check=True, text=True,
                                capture_output=True).stdout
        self.fingerprint = next(device["fingerprint"] for device in json.loads(listed)["devices"]
                                if device["kind"] == arguments.device)

    def send(self, message):
        self.socket.sendall((json.dumps(message) + "\n").encode())

    def ask(self, message, answer):
        """The next answer of a type; answers of other types are skipped."""
        self.send(message)
        for line in self.lines:
            received = json.loads(line)
            if received["type"] == "refused":
                raise RuntimeError(received["reason"])
            if received["type"] == answer:
                return received
        raise RuntimeError("the daemon has closed the connection")

    def ask_for_much(self, width):
        for cols, bucket in QUEUED:
            self.send({"type": "tune", "problem": f"compose/f32,f32,f32,f32/v{width}/c{cols}/r{bucket}",
                       "device": self.fingerprint, "space": "slim", "calls": 1, "gain": 0.2})

    def status(self):
        return json.loads(self.ask({"type": "status"}, "text")["text"])

    def pause(self, stops):
        """Stops or continues the daemon and its workers."""
        how = signal.SIGSTOP if stops else signal.SIGCONT
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in [self.process.pid, *map(int, children.read_text().split())]:
            os.kill(pid, how)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Loop:
    """Compose on one set of operands; each call is timed."""

    def __init__(self, library, device):
        self.memory = device_memory.memory_of(device)
        kind = dorajit_c.CUDA if device == "cuda" else dorajit_c.CPU
        self.addresses = [self.memory.allocate(ROWS * COLS * 4) for _ in range(4)]
        for i, address in enumerate(self.addresses[:3]):
            exponents = random.Random(i).randbytes(ROWS * COLS * 4)
            # Finite numbers of ordinary size: set the highest bits of the exponent to those of 1.
            plain = bytearray(exponents)
            plain[3::4] = bytes(0x3F if byte % 2 else 0xBF for byte in plain[3::4])
            self.memory.write(address, bytes(plain))
        self.operands = [dorajit_c.raw_view(address, (1 if i == 2 else ROWS, COLS), "float32", kind)
                         for i, address in enumerate(self.addresses)]
        self.library = library
        self.bits = set()

    def batch(self):
        lora, base, gain, out = self.operands
        times = []
        for _ in range(BATCH):
            start = time.perf_counter()
            self.library.compose(None, lora, base, gain, 0.5, out)
            self.memory.synchronize()
            times.append((time.perf_counter() - start) * 1e6)
        self.bits.add(hashlib.sha256(self.memory.read(self.addresses[3], ROWS * COLS * 4)).digest())
        return times

    def run_for(self, seconds):
        times = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            times += self.batch()
        return times


def percentile(times, share):
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]


def measure(arguments, folder):
    daemon = Daemon(arguments, folder)
    try:
        loop = Loop(dorajit_c.Dorajit(arguments.library), arguments.device)
        loop.batch()  # also asks the daemon to tune its own problem
        daemon.ask_for_much(4 if arguments.device == "cuda" else 1)
        while daemon.status()["tuned"] == 0:
            loop.batch()
        phases = {"without": [], "with": []}
        before = daemon.status()["tuning_seconds"]
        for _ in range(arguments.rounds):
            for name, times in phases.items():
                daemon.pause(name == "without")
                times += loop.run_for(arguments.seconds)
        status = daemon.status()
        if status["jobs_waiting"] == 0:
            raise RuntimeError("the queue ran empty; give fewer rounds")
    finally:
        daemon.pause(False)
        daemon.end()
    spent = status["tuning_seconds"] - before
    return phases, loop.bits, spent / (arguments.rounds * arguments.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--duty", type=float, default=25)
    parser.add_argument("--busy-duty", type=float, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="length of a phase")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds of two phases")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dj") as folder:
        os.environ |= {"DORAJIT_CACHE_DIR": folder + "/cache", "DORAJIT_DAEMON_DIR": folder,
                       "DORAJIT_DATABASES": "none", "DORAJIT_TUNE": "daemon"}
        phases, bits, share = measure(arguments, folder)
    medians = {name: statistics.median(times) for name, times in phases.items()}
    report = {"device": arguments.device, "problem": f"compose f32 {ROWS}x{COLS}",
              "duty": arguments.duty, "busy_duty": arguments.busy_duty,
              "share_spent_tuning": share, "distinct_results": len(bits),
              "slowdown_of_median": medians["with"] / medians["without"]}
    for name, times in phases.items():
        report[name] = {"calls": len(times), "median_us": medians[name],
                        "p99_us": percentile(times, 0.99)}
        print(f"{arguments.device} {name} tuning: median {medians[name]:.1f} us, 99th percentile "
              f"{report[name]['p99_us']:.1f} us, {len(times)} calls")
    print(f"median slowed down to {report['slowdown_of_median']:.3f}x while the daemon tuned for "
          f"{share:.0%} of the time; results: {len(bits)} distinct")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)
    if len(bits) != 1:
        raise SystemExit("the bits of a result changed")


if __name__ == "__main__":
    main()
