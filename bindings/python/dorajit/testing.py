"""What tests and measurements need to know of a process."""

from typing import Any

from dorajit import _native


def launch_counts() -> dict[str, int]:
    """Operation -> how many calls of this process a kernel has served.

    All operations of the library are there, by their names in its table.
    """
    return _native.call_counts()


def statistics() -> dict[str, Any]:
    """What the engines of this process have done, and what they run (docs/c_abi.md).

    Counts: launches, compilations, artifact_hits, builtin_kernels, tuned_problems, trials,
    renewed_plans. Under "plans" a list, with a dictionary for each problem on each device that calls
    or warmup have made ready: problem, device ("cpu", "cuda:0"), fingerprint (what the tuning
    database calls the device), config (what runs), source (the source of the fallback chain that it comes
    from, docs/tuning.md) and renewals (how often a winner that arrived later changed config or
    source).
    """
    return _native.statistics()
