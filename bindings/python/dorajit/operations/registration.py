"""Registration of operators where torch.library is not enough.

torch.library takes no formulas for torch.func transforms and forward-mode differentiation (PyTorch would drop the
tangents).
"""

import torch

from dorajit.operations import dispatch, eligibility

_below_autograd = torch._C._AutoDispatchBelowAutograd


class Library(torch.library.Library):
    """A library of differentiable operators that run as PyTorch's own operations inside transforms."""

    def __init__(self, namespace, kind):
        super().__init__(namespace, kind)
        self._plain = {}

    def add(self, name, schema, run, fake):
        """Defines an operator for all devices; on those without kernels it runs in PyTorch."""
        self.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        self.impl(name, run, "CompositeExplicitAutograd")  # below autograd
        torch.library.register_fake(f"{self.ns}::{name}", fake, lib=self)

    def register_autograd(self, name, plain, differentiate, save):
        """torch.library.register_autograd, and `plain`, the operator in PyTorch's own operations."""
        self._plain[name] = plain
        decompose(getattr(getattr(torch.ops, self.ns), name), plain)
        torch.library.register_autograd(f"{self.ns}::{name}", differentiate, setup_context=save, lib=self)

    def register_node(self, name, plain, differentiate, save, forward):
        """As register_autograd, for an operator whose forward pass is another operator, `forward`, which has no autograd.
        Compiled code contains only that one, and so enters Python once in a call instead of twice."""

        class Node(torch.autograd.Function):
            setup_context, backward = staticmethod(save), staticmethod(differentiate)

            @staticmethod
            def forward(*operands):
                with _below_autograd():
                    return forward(*operands)

        def autograd(_, *operands):
            if eligibility.builds_graph(*operands):
                return Node.apply(*operands)
            return Node.forward(*operands)

        super().impl(name, _or_plain(name, autograd, plain), "Autograd", with_keyset=True)
        decompose(forward, plain)

    def register_constant(self, name):
        """Registers an operator whose results are constants for autograd."""
        operator = getattr(getattr(torch.ops, self.ns), name)

        def autograd(*operands):
            with _below_autograd():
                return operator(*operands)

        super().impl(name, autograd, "Autograd")

    def impl(self, op_name, fn, dispatch_key="", **options):
        if dispatch_key == "Autograd":  # from torch.library.register_autograd
            fn = _or_plain(op_name, fn, self._plain[op_name])
        super().impl(op_name, fn, dispatch_key, **options)


def decompose(operator, plain):
    """Registers `plain`, the operator in PyTorch's own operations, for exporters to programs without dorajit. The
    exporter to ONNX uses this table; torch.compile and torch.export do not."""
    torch._decomp.decomposition_table[operator.default] = plain


def _or_plain(name, differentiable, plain):
    def kernel(keyset, *operands):
        if not eligibility.is_transformed():
            return differentiable(keyset, *operands)
        dispatch.require_native(name, eligibility.why_expression())
        return plain(*operands)
    return kernel
