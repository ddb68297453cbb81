"""The library's operations, as its table describes them."""

import dataclasses
import functools
from typing import Callable, NamedTuple

from dorajit import _native


class Operand(NamedTuple):
    """A tensor of an operation.

    Attributes:
        name: in the table.
        dimensions: their names. All dimensions of a tensor before its last are the first of two; all
            dimensions of a tensor are the only one of a vector.
        is_required: may not be left out.
        is_for_sum: an input that only the sum needs.
        is_sum: an output with the sum over a channel.
        is_per_channel: has one element per channel and is broadcast over the first input.
    """

    name: str
    dimensions: tuple[str, ...]
    is_required: bool = True
    is_for_sum: bool = False
    is_sum: bool = False
    is_per_channel: bool = False

    def sizes(self, tensor):
        """Name of a dimension -> how much of it the tensor has."""
        if len(self.dimensions) == 1:
            return {self.dimensions[0]: tensor.numel()}
        outer, inner = self.dimensions
        return {outer: tensor.shape[:-1].numel(), inner: tensor.shape[-1] if tensor.dim() else 1}


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
    """One operation.

    Attributes:
        scalars: their names.
        launch: (*inputs, *outputs, *scalars) -> the output, or a tuple of several. An output is a tensor
            to be written, an element type of a tensor to be allocated, True for that of the first input
            of its dimensions, or None where it is left out. Raises dorajit.Error for what no kernel takes.
        at_once: the same as all that a call is, where nobody sees it and a kernel serves it; else who sees
            it, an int (dorajit.operations.eligibility), and nothing was done.
    """

    name: str
    documentation: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    scalars: tuple[str, ...]
    launch: Callable
    at_once: Callable

    @functools.cached_property
    def has_channels(self):
        """Whether an input has one element per channel."""
        return any(one.is_per_channel for one in self.inputs)

    @functools.cached_property
    def has_one_shape(self):
        """Whether all tensors but those with one element per channel are of one shape."""
        return len({one.dimensions for one in self.inputs + self.outputs if not one.is_per_channel}) == 1

    @functools.cached_property
    def is_composition(self):
        """Whether it makes a matrix of matrices and channels whatever else is left out."""
        return self.has_channels and self.outputs[0].is_required

    @functools.cached_property
    def num_required(self):
        """How many outputs may not be left out; they are the first."""
        return sum(one.is_required for one in self.outputs)

    @functools.cached_property
    def makes_gradients(self):
        """Whether each of its outputs may be left out."""
        return self.num_required == 0

    @functools.cached_property
    def models(self):
        """By output: the place of the first input of its dimensions that may not be left out; 0 if there is
        none."""
        return tuple(next((i for i, one in enumerate(self.inputs) if one.is_required
                           and one.dimensions == output.dimensions), 0) for output in self.outputs)

    def given(self, inputs):
        """Python's names -> the tensors, without those that are left out."""
        return {operand.name: tensor for operand, tensor in zip(self.inputs, inputs)
                if tensor is not None or operand.is_required}

    def model_of(self, output, inputs):
        """The input after which an output is allocated, the first of its dimensions; None if there is
        none."""
        return next((tensor for operand, tensor in zip(self.inputs, inputs)
                     if operand.dimensions == output.dimensions and tensor is not None), None)

    def shape_of(self, output, inputs):
        """That of an output which has no model: its dimensions are as long as in the inputs."""
        return tuple(size for dimension in output.dimensions for size in next(
            _extent(operand, dimension, tensor) for operand, tensor in zip(self.inputs, inputs)
            if tensor is not None and dimension in operand.dimensions))

    def needed(self, inputs, is_summed):
        """The inputs without those that only a sum needs, unless there is one."""
        return inputs if is_summed else tuple(
            None if one.is_for_sum else tensor for one, tensor in zip(self.inputs, inputs))


def _extent(operand, dimension, tensor):
    """The sizes of a tensor that are one dimension of its operand."""
    if len(operand.dimensions) == 1:
        return tuple(tensor.shape)
    return tuple(tensor.shape[:-1] if dimension == operand.dimensions[0] else tensor.shape[-1:])


def _described(name, documentation, operands, scalars):
    inputs, outputs = [], []
    for one in operands:
        (outputs if one.pop("is_output") else inputs).append(Operand(**one))
    return Operation(name, documentation, tuple(inputs), tuple(outputs), tuple(scalars), getattr(_native, name),
                     getattr(_native, f"{name}_at_once"))


operations = {name: _described(name, *rest) for name, *rest in _native.operations()}
def _make_properties():
    """All of them, since torch.compile does not trace the lock under which Python 3.11 makes one."""
    for operation in operations.values():
        for name, one in vars(Operation).items():
            if isinstance(one, functools.cached_property):
                getattr(operation, name)


_make_properties()
