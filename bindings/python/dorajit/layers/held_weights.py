"""The weights that an autograd node needs in its backward pass."""

import torch

from dorajit.norms.recomputation import top_hooks

_Parameter = torch.nn.Parameter
_is_compiling = torch.compiler.is_compiling


class HeldWeights:
    """Holds references to the weights that are parameters, which live as long as their module. The node saves the
    others. A checkpoint calls two hooks for each saved tensor, and none for those that are held.

    Attributes:
        others: the weights that the node has to save; None in the places of parameters.
    """

    __slots__ = ("others", "_function", "_names", "_held", "_versions")

    def __init__(self, function, names, *weights):
        """`function` and `names`, of the arguments, are for error messages."""
        self._function, self._names = function, names
        self._held = [one if type(one) is _Parameter else None for one in weights]
        self.others = [None if type(one) is _Parameter else one for one in weights]
        # Under saved-tensor hooks versions are not compared, as autograd does not either: a checkpoint runs the
        # forward pass again with the present weights.
        self._versions = None if top_hooks(False) is not None else [
            None if one is None else one._version for one in self._held]

    def all(self, others):
        """All weights in their order; `others` are the saved ones.

        Raises:
            RuntimeError: a parameter was written since the forward pass; autograd raises the same for saved tensors.
        """
        if self._versions is not None and not _is_compiling():  # traced tensors have other versions
            for name, one, version in zip(self._names, self._held, self._versions):
                if one is not None and one._version != version:
                    raise RuntimeError(f"{self._function}: argument `{name}`, which its gradients need, was modified "
                                       f"by an inplace operation: it is at version {one._version}, expected is "
                                       f"version {version}; write to it after the backward pass, or to a copy")
        return [other if one is None else one for one, other in zip(self._held, others)]
