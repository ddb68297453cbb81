"""Runs any operation: without autograd by a kernel, or in PyTorch if no kernel takes the tensors; observed calls as
operators.

Outputs that are not given are allocated by PyTorch, with the layout of torch.empty_like.
"""

import warnings

import torch

from dorajit import checks, errors
from dorajit.operations import eligibility, expression
from dorajit.control import state

_ops = torch.ops.dorajit


def launch(operation, inputs, outputs, *scalars):
    """The outputs of the operation by a kernel, as Operation.launch returns them; None if PyTorch has to run it.

    Args:
        operation: an Operation.
        inputs: the tensors, None for those that are left out.
        outputs: for each output a tensor to write, the element type of a tensor to allocate, or None.

    Raises:
        TypeError, ValueError: an input is wrong.
        dorajit.Error: the launch failed for another reason than the views of the tensors.
    """
    if state.enabled:
        try:
            return operation.launch(*inputs, *outputs, *scalars)
        except errors.Error as error:
            return launch_over_views(error, operation, inputs, outputs, scalars)
    checks.operands(operation.name, operation, inputs)
    return None


def launch_over_views(error, operation, inputs, outputs, scalars):
    """launch with other views of the tensors, after the extension module has refused them with this error, which is
    raised if a kernel takes them as they are."""
    checks.operands(operation.name, operation, inputs)
    if all(one is None for one in outputs):
        return None
    if isinstance(error, (errors.NoDriverError, errors.NoCompilerError)):
        reason = str(error)
        warnings.warn(f"{reason}. Until then such calls run in PyTorch.", RuntimeWarning, stacklevel=5)
    elif not isinstance(error, (errors.InvalidArgumentError, errors.UnsupportedError, errors.WrongDeviceError)):
        raise error
    else:
        given = operation.given(inputs)
        reason = next(filter(None, map(eligibility.unfit, given, given.values())), None)
    if reason is None:
        answer, made = planned(operation, inputs, outputs)
        if answer.reason is None and not answer.changed:
            raise error
        reason = answer.reason
    if reason is not None:
        eligibility.require_native(operation.name, reason)
        return None
    operation.launch(*answer.operands, *scalars)
    return made if len(made) > 1 else made[0]


def planned(operation, inputs, outputs):
    """(Plan, outputs) of a call, with a new tensor in place of each element type. If only the strides of the inputs of
    a backward pass are not those of a kernel, the Plan has contiguous copies of them."""
    made = allocated(operation, inputs, outputs)
    answer = eligibility.plan(operation, inputs, made)
    if answer.strides_only and operation.makes_gradients:
        inputs = tuple(one if one is None else one.contiguous() for one in inputs)
        made = allocated(operation, inputs, outputs)
        answer = eligibility.plan(operation, inputs, made)._replace(changed=True)
    return answer, made


def outputs(operation, inputs, scalars, more=(), num_outputs=None):
    """All outputs of an operation, None for those that are left out. `more` and `num_outputs` as for
    expression.output_types.

    Raises:
        dorajit.UnsupportedError: no kernel takes the inputs, and the operation has no formula in PyTorch.
    """
    types = expression.output_types(operation, inputs, more, num_outputs)
    if operation.makes_gradients:
        inputs = operation.needed(inputs, types[-1] is not None)
    made = launch(operation, inputs, types, *scalars)
    if made is None:
        made = expression.outputs(operation, inputs, scalars, more, num_outputs)
    elif len(types) == 1:
        made = (made,)
    if made is None:
        raise errors.UnsupportedError(f"{operation.name}: no kernel takes these tensors, and the operation has no "
                                      "expression in PyTorch; explain_dispatch says why", errors.UNSUPPORTED)
    return made


def observed(function, operation, inputs, scale, more=()):
    """All outputs of a call that somebody observes, or while a switch is off, None for those that are left out: those of
    the operator, or of PyTorch's own operations. A composition that keeps inner for its backward pass has it as a second
    output. `function`: its name in messages; `more` as for Formula.compute."""
    given = operation.given(inputs).values()
    reason = eligibility.why_torch(operation, given)
    if reason is not None or not eligibility.is_compiling():  # traced operators check their arguments
        scale = checks.scale(function, scale)
        checks.operands(function, operation, inputs)
    if reason is not None:
        eligibility.require_native(function, reason)
        return expression.outputs(operation, inputs, (scale,), more)
    if not operation.makes_gradients:
        keeps_inner = operation.is_composition and eligibility.builds_graph(inputs[2])
        name = f"{operation.name.removesuffix('_inner')}_inner" if keeps_inner else operation.name
        made = getattr(_ops, name)(*inputs, scale)
        return made if isinstance(made, (tuple, list)) else (made,)
    wanted, *free = more
    inputs = operation.needed(inputs, wanted[-1])
    made = iter(getattr(_ops, operation.name)(*inputs, scale, list(wanted), *free))
    return tuple([next(made) if want else None for want in wanted])


def allocated(operation, inputs, outputs):
    """The outputs, with a new tensor in place of each element type."""
    return tuple(
        new_output(operation, operand, inputs, output) if isinstance(output, torch.dtype) else output
        for operand, output in zip(operation.outputs, outputs))


def new_output(operation, output, inputs, dtype):
    """A new tensor for an output, like the first input with the same dimensions if there is one."""
    model = operation.model_of(output, inputs)
    if model is not None:
        return torch.empty_like(model, dtype=dtype)
    return inputs[0].new_empty(operation.shape_of(output, inputs), dtype=dtype)
