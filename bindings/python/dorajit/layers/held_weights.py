"""The weights that a node of autograd's graph needs in its backward pass."""

import torch

_Parameter = torch.nn.Parameter
_is_compiling = torch.compiler.is_compiling
# Of a PyTorch that does not tell, tensors may be saved under hooks.
_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: True)


class HeldWeights:
    """Holds the parameters among them, which live as long as their module. The node saves the others. A checkpoint
    calls two hooks for each tensor that is saved, and none for those that are held.

    Attributes:
        others: None in the places of parameters.
    """

    __slots__ = ("others", "_function", "_names", "_held", "_versions")

    def __init__(self, function, names, *weights):
        """Of a function with arguments of these names."""
        self._function, self._names = function, names
        self._held = [one if type(one) is _Parameter else None for one in weights]
        self.others = [None if type(one) is _Parameter else one for one in weights]
        # Autograd compares no versions of tensors that hooks saved either: a checkpoint runs the forward pass again
        # with the weights as they are then.
        self._versions = None if _top_hooks(False) is not None else [
            None if one is None else one._version for one in self._held]

    def all(self, others):
        """All of them in their order.

        Raises:
            RuntimeError: a parameter was written since, as for a tensor that was saved.
        """
        if self._versions is not None and not _is_compiling():  # tensors that are traced have versions of their own
            for name, one, version in zip(self._names, self._held, self._versions):
                if one is not None and one._version != version:
                    raise RuntimeError(f"{self._function}: argument `{name}`, which its gradients need, was modified "
                                       f"by an inplace operation: it is at version {one._version}, expected is "
                                       f"version {version}; write to it after the backward pass, or to a copy")
        return [other if one is None else one for one, other in zip(self._held, others)]
