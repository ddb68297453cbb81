"""Counters for tests and benchmarks."""

from typing import Any

from dorajit import _native


def launch_counts() -> dict[str, int]:
    """Operation -> number of calls of this process that a kernel has served.

    The dictionary has all operations of the library, by their names in its table.
    """
    return _native.call_counts()


def statistics() -> dict[str, Any]:
    """Counters and plans of the engines of this process (docs/c_abi.md).

    Returns:
        The counters launches, compilations, artifact_hits, builtin_kernels, tuned_problems, trials and
        renewed_plans. "plans" is a list with a dictionary for each problem on each device that a call
        or warmup has made ready: problem, device ("cpu", "cuda:0"), fingerprint (the device's key in the
        tuning database), config, source (the source of the config in the fallback chain, docs/tuning.md)
        and renewals (how often a winner that arrived later changed config or source).
    """
    return _native.statistics()
