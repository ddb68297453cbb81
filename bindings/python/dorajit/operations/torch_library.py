"""The operators dorajit::* of torch.library, for torch.compile, torch.export and dispatch modes.

Each operation of the library has an operator, with its inputs, its scale and, if it computes gradients, which are
wanted and the free element types:

    dorajit::compose(lora, base, gain, scale) -> out
    dorajit::compose_inner(lora, base, gain, scale) -> (out, inner)
    dorajit::backward(d_out, inner?, gain, scale, wanted, base_dtype) -> the gradients wanted

An optional output has a second operator, such as `compose_residual_inner` beside `compose_residual`. Each runs a kernel if
one takes the tensors, and otherwise PyTorch. Operators with a backward pass are differentiable; that of a composition is
dorajit::backward or dorajit::residual_backward.
"""

import functools

import torch

from dorajit import checks
from dorajit.operations import autograd, eligibility, expression, run
from dorajit.operations.table import operations

_ops = torch.ops.dorajit
_below_autograd = torch._C._AutoDispatchBelowAutograd


class Library(torch.library.Library):
    """A library of operators that run as PyTorch's own operations inside transforms: torch.library takes no formulas for
    torch.func and forward-mode differentiation (PyTorch would drop the tangents)."""

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
        forward = forward or getattr(_ops, name)

        class Node(torch.autograd.Function):
            setup_context, backward = staticmethod(save), staticmethod(differentiate)

            @staticmethod
            def forward(*operands):
                with _below_autograd():
                    made = forward(*operands)
                return tuple(made) if isinstance(made, list) else made

        def autograd(*operands):
            reason = eligibility.why_expression()
            if reason:
                eligibility.require_native(name, reason)
                return plain(*operands)
            return Node.apply(*operands) if eligibility.builds_graph(*operands) else Node.forward(*operands)

        self.impl(name, autograd, "Autograd")

    def register_constant(self, name):
        """Registers an operator whose results are constants for autograd."""
        operator = getattr(_ops, name)

        def autograd(*operands):
            with _below_autograd():
                return operator(*operands)

        self.impl(name, autograd, "Autograd")


# --- schemas and implementations -----------------------------------------------------------------


def _schema(name, operation, num_outputs):
    inputs = [f"Tensor{'' if one.is_required else '?'} {one.name}" for one in operation.inputs]
    inputs += [f"float {one}" for one in operation.scalars]
    if operation.makes_gradients:
        formula = expression.formulas.get(operation.name)
        types = [f"ScalarType {one}" for one in (formula.free_types.values() if formula else ())]
        return f"{name}({', '.join([*inputs, 'bool[] wanted', *types])}) -> Tensor[]"
    results = ", ".join(["Tensor"] * num_outputs)
    return f"{name}({', '.join(inputs)}) -> {results if num_outputs == 1 else f'({results})'}"


def _returned(operation, outputs):
    """The outputs that are not None, as an operator returns them."""
    made = [one for one in outputs if one is not None]
    return made if operation.makes_gradients else made[0] if len(made) == 1 else tuple(made)


def _laid_out(result, like):
    """The result with the strides that the fake implementations promise."""
    if like is None:
        return result.contiguous()
    strides = torch.empty_like(like, device="meta").stride()  # a meta tensor takes no memory
    if result.stride() == strides:
        return result
    return torch.empty_strided(like.shape, strides, dtype=result.dtype, device=result.device).copy_(result)


def _split(operation, arguments):
    """(inputs, scalars, further arguments)."""
    count = len(operation.inputs)
    after = count + len(operation.scalars)
    return arguments[:count], arguments[count:after], arguments[after:]


def _run(operation, num_outputs, *arguments):
    inputs, scalars, more = _split(operation, arguments)
    outputs = run.outputs(operation, inputs, scalars, more, num_outputs)
    return _returned(operation, [None if one is None else _laid_out(one, operation.model_of(operand, inputs))
                                 for operand, one in zip(operation.outputs, outputs)])


def _fake(operation, num_outputs, *arguments):
    inputs, _, more = _split(operation, arguments)
    checks.operands(operation.name, operation, inputs)
    types = expression.output_types(operation, inputs, more, num_outputs)
    return _returned(operation, [None if dtype is None else run.new_output(operation, operand, inputs, dtype)
                                 for operand, dtype in zip(operation.outputs, types)])


def _expression(operation, num_outputs, *arguments):
    inputs, scalars, more = _split(operation, arguments)
    checks.operands(operation.name, operation, inputs)
    return _returned(operation, expression.outputs(operation, inputs, scalars, more, num_outputs))


# --- differentiation -----------------------------------------------------------------------------

def _through_backward_pass(operation, name):
    """(differentiate, save) for Library.register_node of a composition whose backward pass is the operation `name`.
    Operands are lora, the base result, gain, and others without gradients, of which the last is the scale."""
    is_free = [output.name in expression.formulas[name].free_types for output in operations[name].outputs]

    def save(ctx, inputs, output):
        lora, base, gain, *more = inputs
        if any(ctx.needs_input_grad[3:]):
            raise RuntimeError("compose_residual: argument `bias` requires grad, for which the operator "
                               "has no formula; call dorajit.fused_dora_compose_residual")
        ctx.scale, ctx.more = more[-1], len(more)
        ctx.types = tuple(one.dtype for one, has_type in zip((lora, base), is_free) if has_type)
        ctx.set_materialize_grads(False)
        kept = output[1:] if isinstance(output, tuple) else (lora, base, *more[:-1])
        ctx.save_for_backward(gain, *(kept if ctx.needs_input_grad[2] else (None,)))

    def differentiate(ctx, d_out, d_inner=None):
        gain, *kept = ctx.saved_tensors
        inner = kept[0]
        if len(kept) > 1:  # inner is computed again; callers that need it use the operator that returns it
            lora, base, *biases = kept
            again = getattr(_ops, f"{operation.name.removesuffix('_inner')}_inner")
            inner = again(lora, base, gain, *biases, ctx.scale)[1]
        through_out = autograd.backward_passes[name]
        return *autograd.gradients(ctx, gain, inner, d_out, d_inner, through_out), *(None,) * ctx.more

    return differentiate, save


def _through_formula(operation):
    """The same for an operation that is differentiated through its formula, which is computed again."""
    def save(ctx, inputs, output):
        tensors, ctx.scalars, ctx.more = _split(operation, inputs)
        ctx.save_for_backward(*tensors)

    def differentiate(ctx, *given):
        tensors = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:len(tensors)]
        with torch.enable_grad():
            inputs = [one.view_as(one) if want else one for one, want in zip(tensors, wanted)]
            made = expression.outputs(operation, inputs, ctx.scalars, ctx.more)
        pairs = [(one, gradient) for one, gradient in zip((one for one in made if one is not None), given)
                 if gradient is not None]
        found = iter(torch.autograd.grad(
            [one for one, _ in pairs], [one for one, want in zip(inputs, wanted) if want], [one for _, one in pairs],
            create_graph=torch.is_grad_enabled(), allow_unused=True))
        return *(next(found) if want else None for want in wanted), *(None,) * (len(ctx.scalars) + len(ctx.more))

    return differentiate, save


# --- registration --------------------------------------------------------------------------------

def _register(library, operation, name, num_outputs):
    formula = expression.formulas.get(operation.name)
    run_it, fake, plain = (functools.partial(one, operation, num_outputs) for one in (_run, _fake, _expression))
    library.add(name, _schema(name, operation, num_outputs), run_it, fake)
    if formula is not None and (formula.is_differentiable or formula.backward):
        pair = (_through_formula(operation) if formula.is_differentiable
                else _through_backward_pass(operation, formula.backward))
        library.register_node(name, plain, *pair)
    elif formula is not None:
        library.register_constant(name)


_library = Library("dorajit", "DEF")
for _operation in operations.values():
    _required = _operation.num_required
    _register(_library, _operation, _operation.name, _required)
    if _required:
        for _count, _output in enumerate(_operation.outputs[_required:], _required + 1):
            _register(_library, _operation, f"{_operation.name}_{_output.name}", _count)
