"""The weights that a node of autograd's graph needs in its backward pass."""

import torch

_Parameter = torch.nn.Parameter
# Of a PyTorch that does not tell, tensors may be saved under hooks.
_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: True)


class HeldWeights:
    """Those that are parameters, which live as long as their module, are held; the others are for the node to save.
    Saved as well, each parameter would cost two calls of a checkpoint's hooks.

    Attributes:
        others: None in the places of parameters.
    """

    __slots__ = ("others", "_function", "_names", "_held", "_versions")

    def __init__(self, function, names, *weights):
        """Of a function with arguments of these names."""
        self._function, self._names = function, names
        self._held = [one if type(one) is _Parameter else None for one in weights]
        self.others = [None if type(one) is _Parameter else one for one in weights]
        # Nor does autograd compare versions under hooks: a checkpoint runs the pass again with what was written.
        self._versions = None if _top_hooks(False) is not None else [
            None if one is None else one._version for one in self._held]

    def all(self, others):
        """All of them in their order.

        Raises:
            RuntimeError: a parameter was written since, as for a tensor that was saved.
        """
        if self._versions is not None:
            for name, one, version in zip(self._names, self._held, self._versions):
                if one is not None and one._version != version:
                    raise RuntimeError(f"{self._function}: argument `{name}`, which its gradients need, was modified by "
                                       f"an inplace operation: it is at version {one._version}, expected is version "
                                       f"{version}; write to it after the backward pass, or to a copy")
        return [other if one is None else one for one, other in zip(self._held, others)]
