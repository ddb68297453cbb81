"""Recording: calls over fake tensors note the problems that they would launch, for a device that this machine need not
have (dorajit.prewarm).

Fake tensors (torch._subclasses.FakeTensor) of the CPU have shapes, strides and types, and no memory. While a recording
runs, they count as plain tensors, and kernels are chosen as on the target: every call goes the way that it goes with real
tensors there, up to its launch.
"""

import contextlib
import functools
from typing import NamedTuple

import torch

from dorajit import _native, checks


class Target(NamedTuple):
    """A device, as far as the choice of kernels depends on it."""

    type: str  # "cpu" or "cuda"; for tensors that no kernel takes, that of their device
    capability: tuple[int, int] = (0, 0)  # the compute capability of a GPU


target = None  # that of the recording that runs


def is_running():
    return target is not None


def target_of(tensor):
    """The Target of a tensor's kernels."""
    return target or _of_device(tensor.device)


def is_cuda(tensor):
    return tensor.is_cuda if target is None else target.type == "cuda"


@functools.lru_cache(maxsize=None)
def _of_device(device):
    return Target(device.type, torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0))


@contextlib.contextmanager
def record(of):
    """Context that yields a dictionary, to which the calls inside add their problems: problem -> JSON of the own kernel,
    or None. For a Target. Other threads of the process may call the package, but over no fake tensors."""
    global target
    if target is not None:
        raise RuntimeError("prewarm: another recording runs in this process; wait for its end")
    from torch._subclasses import FakeTensor  # takes long to import
    problems = {}
    major, minor = of.capability
    target = of
    checks.PLAIN.add(FakeTensor)
    _native.record(problems.setdefault, FakeTensor, 10 * major + minor)
    try:
        yield problems
    finally:
        _native.record(None, None, 0)
        checks.PLAIN.discard(FakeTensor)
        target = None
