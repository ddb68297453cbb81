"""Registration of operators where torch.library is not enough.

torch.library takes no formulas for torch.func transforms and forward-mode differentiation (PyTorch would drop the
tangents).
"""

import torch

from dorajit.operations import dispatch, eligibility

_below_autograd = torch._C._AutoDispatchBelowAutograd


class Library(torch.library.Library):
    """A library of operators that run as PyTorch's own operations inside transforms."""

    def add(self, name, schema, run, fake):
        """Defines an operator for all devices; on those without kernels it runs in PyTorch."""
        self.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        self.impl(name, run, "CompositeExplicitAutograd")  # below autograd
        torch.library.register_fake(f"{self.ns}::{name}", fake, lib=self)

    def register_node(self, name, plain, differentiate, save, forward=None):
        """Makes an operator differentiable.

        Args:
            plain: the operator in PyTorch's own operations.
            differentiate, save: backward and setup_context of a torch.autograd.Function.
            forward: another operator, which has no autograd, for the forward pass; None: the operator itself. Compiled
                code contains only the other one, and so enters Python once in a call instead of twice.
        """
        forward = forward or self._operator(name)

        class Node(torch.autograd.Function):
            setup_context, backward = staticmethod(save), staticmethod(differentiate)

            @staticmethod
            def forward(*operands):
                with _below_autograd():
                    made = forward(*operands)
                return tuple(made) if isinstance(made, list) else made

        def autograd(*operands):
            if eligibility.is_transformed():
                dispatch.require_native(name, eligibility.why_expression())
                return plain(*operands)
            return Node.apply(*operands) if eligibility.builds_graph(*operands) else Node.forward(*operands)

        self.impl(name, autograd, "Autograd")
        decompose(forward, plain)

    def register_constant(self, name):
        """Registers an operator whose results are constants for autograd."""
        operator = self._operator(name)

        def autograd(*operands):
            with _below_autograd():
                return operator(*operands)

        self.impl(name, autograd, "Autograd")

    def _operator(self, name):
        return getattr(getattr(torch.ops, self.ns), name)


def decompose(operator, plain):
    """Registers `plain`, the operator in PyTorch's own operations, for exporters to programs without dorajit. The
    exporter to ONNX uses this table; torch.compile and torch.export do not."""
    torch._decomp.decomposition_table[operator.default] = plain
