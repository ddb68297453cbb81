"""Device times of short launches: graphs that replay many, a cold cache, interleaved samples.

A graph removes the cost of launches from the CPU, which at small sizes would be most of the
time. Before each replay the L2 cache is filled with other data, and within a replay no launch
uses operands that an earlier one may have left in the cache. So neither a contender's own launches nor
those of the previous contender warm the cache. All contenders rotate through the same sets.
"""

import dataclasses
import random
import statistics

import torch

# The length of a replay, long enough that the resolution of events and the start of a graph do not matter.
_REPLAY_US = 250
_LAUNCH_US = 2
_BYTES_PER_US = 4.3e6
_LAUNCHES = (4, 64)
# Between two uses of an operand set, this many times the cache's size is moved, so that none of it is left.
_EVICTING_CACHE_SIZES = 4


@dataclasses.dataclass(frozen=True)
class Rotation:
    launches: int
    sets: int


def l2_bytes():
    return torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size


def rotation(moved_bytes):
    """The number of launches in a graph and of operand sets that they rotate through."""
    wanted = _REPLAY_US / (_LAUNCH_US + moved_bytes / _BYTES_PER_US)
    launches = min(max(round(wanted), _LAUNCHES[0]), _LAUNCHES[1])
    evicting = _EVICTING_CACHE_SIZES * l2_bytes() // moved_bytes + 2
    return Rotation(launches, min(launches, evicting))


def foreign_kernel():
    """A function that enqueues a short kernel of PyTorch."""
    numbers = torch.zeros(1024, device="cuda")
    return lambda: numbers.add_(1)


def capture(run, how, before=None):
    """A graph of launches by run(set index), each after before() if that is given. run must have been called
    before, so that nothing is compiled during the capture. torch.cuda.graph is not used, because it collects garbage
    and empties the allocator's cache every time."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for launch in range(how.launches):
                if before:
                    before()
                run(launch % how.sets)
        finally:
            graph.capture_end()
    return graph


class Sampler:
    def __init__(self):
        half = max(_EVICTING_CACHE_SIZES * l2_bytes(), 2**27)
        self._evicting = torch.zeros(2, half, dtype=torch.uint8, device="cuda")

    def times(self, graphs, launches, samples):
        """Microseconds per launch for each graph, in rounds of random order."""
        times = {name: [] for name in graphs}
        for _ in range(samples):
            order = random.sample(list(graphs), len(graphs))
            events = {name: self._replay(graphs[name]) for name in order}
            torch.cuda.synchronize()
            for name, (start, stop) in events.items():
                times[name].append(start.elapsed_time(stop) * 1e3 / launches)
        return times

    def copy_bandwidth(self):
        """Bytes a second of a large pass that writes what it reads, counting both. It is a kernel:
        a copy in a graph runs at two thirds of that."""
        source = torch.randint(2**31, (2**28,), dtype=torch.int32, device="cuda")
        target = torch.empty_like(source)
        torch.neg(source, out=target)
        graph = capture(lambda _: torch.neg(source, out=target), Rotation(4, 1))
        times = self.times({"copy": graph}, 4, 15)["copy"]
        return 2 * source.nbytes / statistics.median(times) * 1e6

    def _replay(self, graph):
        # A copy leaves the cache as kernels do, partly clean and partly dirty. It also
        # keeps the device busy while the CPU enqueues the replay, so that the measured time
        # does not include that.
        self._evicting[0].copy_(self._evicting[1])
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        return start, stop


def quartiles(times):
    return statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
