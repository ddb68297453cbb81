"""What tests and measurements need to know of a process."""

from dorajit import _native


def launch_counts() -> dict[str, int]:
    """Operation -> how many calls of this process a kernel has served.

    All operations of the library are there, by their names in its table.
    """
    return _native.call_counts()


def statistics() -> dict[str, int]:
    """What the engines of this process have done: launches, compilations, artifact_hits,
    builtin_kernels, tuned_problems, trials, renewed_plans (docs/c_abi.md)."""
    return _native.statistics()
