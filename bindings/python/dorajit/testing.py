"""What tests and measurements need to know of a process."""

from dorajit import _native


def launch_counts() -> dict[str, int]:
    """Operation -> how many calls of this process a kernel has served.

    The operations are "compose", "compose_inner", "backward", "norm_assembly", "compose_residual" and
    "residual_backward".
    """
    return _native.call_counts()


def statistics() -> dict[str, int]:
    """What the engines of this process have done: launches, compilations, artifact_hits,
    builtin_kernels, tuned_problems, trials, renewed_plans (docs/c_abi.md)."""
    return _native.statistics()
