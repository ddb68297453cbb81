"""Runs a call on one of the three routes (dorajit.operations.eligibility)."""

import torch

from dorajit.operations import expression, run
from dorajit.operations.eligibility import EXPRESSION, NATIVE

_ops = torch.ops.dorajit


def outputs(route, operation, inputs, scalars, more=()):
    """All outputs of an operation, None for those that are left out.

    Args:
        inputs: the tensors, None for those that are left out.
        more: for an operation that computes gradients, which are wanted, and the free element types.
    """
    if route is NATIVE:
        return run.outputs(operation, inputs, scalars, more)
    if route is EXPRESSION:
        return expression.outputs(operation, inputs, scalars, more)
    if not operation.makes_gradients:
        made = getattr(_ops, operation.name)(*inputs, *scalars)
        return made if isinstance(made, (tuple, list)) else (made,)
    wanted, *free = more
    inputs = operation.needed(inputs, wanted[-1])
    made = iter(getattr(_ops, operation.name)(*inputs, *scalars, list(wanted), *free))
    return tuple([next(made) if want else None for want in wanted])
