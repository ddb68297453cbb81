"""The operations, described by the native library's table."""

import dataclasses
import functools
from typing import Callable, NamedTuple

from dorajit import _native


class Operand(NamedTuple):
    """A tensor of an operation.

    Attributes:
        name: its name in the table.
        dimensions: their names. If there are two, the first one stands for all dimensions of a tensor except the
            last; if there is one, it stands for all dimensions of a tensor.
        is_required: it may not be left out.
        is_for_sum: it is an input that only the sum reads.
        is_sum: it is an output with the sum over a channel.
        is_per_channel: it has one element per channel and is broadcast over the first input.
    """

    name: str
    dimensions: tuple[str, ...]
    is_required: bool = True
    is_for_sum: bool = False
    is_sum: bool = False
    is_per_channel: bool = False

    def sizes(self, tensor):
        """Name of a dimension -> its size in the tensor."""
        if len(self.dimensions) == 1:
            return {self.dimensions[0]: tensor.numel()}
        outer, inner = self.dimensions
        return {outer: tensor.shape[:-1].numel(), inner: tensor.shape[-1] if tensor.dim() else 1}


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
    """One operation.

    Attributes:
        scalars: their names.
        launch: (*inputs, *outputs, *scalars) -> the output, or a tuple of several. An output argument is a
            tensor to write, the element type of a tensor to allocate, True for the type of the first input
            with the same dimensions, or None if it is left out. Raises dorajit.Error for tensors that no
            kernel takes.
        at_once: launch, if nothing observes the call and a kernel serves it. Otherwise it does nothing and
            returns the observer, an int (who_sees in dorajit.operations.eligibility).
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
        """Whether all tensors have the same shape, except those with one element per channel."""
        return len({one.dimensions for one in self.inputs + self.outputs if not one.is_per_channel}) == 1

    @functools.cached_property
    def is_composition(self):
        """Whether its first output is required and it has an input per channel: compose and its variants."""
        return self.has_channels and self.outputs[0].is_required

    @functools.cached_property
    def num_required(self):
        """The number of required outputs; they are the first ones."""
        return sum(one.is_required for one in self.outputs)

    @functools.cached_property
    def makes_gradients(self):
        """Whether all of its outputs are optional, as those of backward passes are."""
        return self.num_required == 0

    @functools.cached_property
    def models(self):
        """For each output the index of its model, the first required input with the same dimensions; 0 if
        there is none."""
        return tuple(next((i for i, one in enumerate(self.inputs) if one.is_required
                           and one.dimensions == output.dimensions), 0) for output in self.outputs)

    def given(self, inputs):
        """Name -> tensor, without inputs that are left out."""
        return {operand.name: tensor for operand, tensor in zip(self.inputs, inputs)
                if tensor is not None or operand.is_required}

    def model_of(self, output, inputs):
        """The model of an output, an input with whose layout the output is allocated: the first given input with the
        same dimensions. None if there is none."""
        return next((tensor for operand, tensor in zip(self.inputs, inputs)
                     if operand.dimensions == output.dimensions and tensor is not None), None)

    def shape_of(self, output, inputs):
        """The shape of an output that has no model, from the sizes of its dimensions in the inputs."""
        return tuple(size for dimension in output.dimensions for size in next(
            _extent(operand, dimension, tensor) for operand, tensor in zip(self.inputs, inputs)
            if tensor is not None and dimension in operand.dimensions))

    def needed(self, inputs, is_summed):
        """The inputs; without those that only the sum reads if `is_summed` is false."""
        return inputs if is_summed else tuple(
            None if one.is_for_sum else tensor for one, tensor in zip(self.inputs, inputs))


def _extent(operand, dimension, tensor):
    """The sizes of a tensor that form one dimension of its operand."""
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
    """Computes all cached properties now, because torch.compile cannot trace the lock that Python 3.11 takes to
    compute one."""
    for operation in operations.values():
        for name, one in vars(Operation).items():
            if isinstance(one, functools.cached_property):
                getattr(operation, name)


_make_properties()
