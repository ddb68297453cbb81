"""A mode that observes calls."""

from torch.utils._python_dispatch import TorchDispatchMode


class Dispatching(TorchDispatchMode):
    """Calls every function as it is; `seen` has their names."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))
