"""How operators are registered beyond what torch.library does by itself.

torch.library takes no formulas for transforms of torch.func and for forward-mode differentiation, in which
PyTorch would drop the tangents, and leaves autograd out where an operator writes into an operand.
"""

import torch

from dorajit.operations import eligibility

_below_autograd = torch._C._AutoDispatchBelowAutograd
_below_in_place = torch._C._AutoDispatchBelowADInplaceOrView


class Library(torch.library.Library):
    """Of operators that are differentiable, which in transforms are PyTorch's own operations."""

    def __init__(self, namespace, kind):
        super().__init__(namespace, kind)
        self._plain = {}

    def register_autograd(self, name, plain, differentiate, save):
        """torch.library's, and what the operator is in PyTorch's operations."""
        self._plain[name] = plain
        torch.library.register_autograd(f"{self.ns}::{name}", differentiate, setup_context=save, lib=self)

    def register_constant(self, name):
        """Of an operator whose results autograd takes for constants."""
        operator = getattr(getattr(torch.ops, self.ns), name)

        def autograd(*operands):
            with _below_autograd():
                return operator(*operands)

        super().impl(name, autograd, "Autograd")

    def register_in_place(self, name, functional):
        """Of an operator that writes into its first operand what `functional` gives."""
        operator = getattr(getattr(torch.ops, self.ns), name)

        def autograd(_, target, *operands):
            if eligibility.builds_graph(target, *operands) or eligibility.is_transformed((target, *operands)):
                target.copy_(functional(target, *operands))  # which knows what is allowed
            else:
                with _below_autograd():
                    operator(target, *operands)

        def count(_, target, *operands):
            with _below_in_place():
                operator(target, *operands)
            # After it, as modes know the tensor that is written by its version.
            torch.autograd.graph.increment_version(target)

        super().impl(name, autograd, "Autograd", with_keyset=True)
        super().impl(name, count, "ADInplaceOrView", with_keyset=True)

    def impl(self, op_name, fn, dispatch_key="", **options):
        if dispatch_key == "Autograd":  # from torch.library.register_autograd
            fn = _or_plain(op_name, fn, self._plain[op_name])
        super().impl(op_name, fn, dispatch_key, **options)


def _or_plain(name, differentiable, plain):
    def kernel(keyset, *operands):
        if not eligibility.is_transformed(operands):
            return differentiable(keyset, *operands)
        eligibility.allow_expression(name, *operands)
        return plain(*operands)
    return kernel
