"""The operations, described by the native library's table."""

from typing import NamedTuple

from dorajit import _native


class Operand(NamedTuple):
    """A tensor of an operation. The first one of two dimensions stands for all dimensions of a tensor except the last, a
    single one for all."""

    name: str
    dimensions: tuple[str, ...]   # their names
    is_required: bool = True      # it may not be left out
    is_for_sum: bool = False      # an input that only the sum reads
    is_sum: bool = False          # an output with the sum over a channel
    is_per_channel: bool = False  # it has one element per channel and is broadcast over the first input

    def extents(self, tensor):
        """Name of a dimension -> the sizes of the tensor that form it."""
        if len(self.dimensions) == 1:
            return {self.dimensions[0]: tuple(tensor.shape)}
        outer, inner = self.dimensions
        return {outer: tuple(tensor.shape[:-1]), inner: tuple(tensor.shape[-1:])}


class Operation:
    """One operation.

    Attributes:
        inputs, outputs: the Operands.
        scalars: their names.
        launch: (*inputs, *outputs, *scalars) -> the output, or a tuple of several. An output argument is a tensor to write,
            the element type of a tensor to allocate, True for the type of the first input with the same dimensions, or None
            if it is left out. Raises dorajit.Error for tensors that no kernel takes.
        at_once: launch, if nothing observes the call and a kernel serves it. Otherwise it does nothing and
            returns the observer, an int (who_sees in dorajit.operations.eligibility).
        has_channels: whether an input has one element per channel.
        has_one_shape: whether all tensors have the same shape, except those with one element per channel.
        num_required: the number of required outputs; they are the first ones.
        is_composition: whether its first output is required and it has an input per channel: compose and its variants.
        makes_gradients: whether all of its outputs are optional, as those of backward passes are.
    """

    def __init__(self, name, documentation, inputs, outputs, scalars, launch, at_once):
        self.name, self.documentation = name, documentation
        self.inputs, self.outputs, self.scalars = inputs, outputs, scalars
        self.launch, self.at_once = launch, at_once
        self.has_channels = any(one.is_per_channel for one in inputs)
        self.has_one_shape = len({one.dimensions for one in inputs + outputs if not one.is_per_channel}) == 1
        self.num_required = sum(one.is_required for one in outputs)
        self.is_composition = self.has_channels and self.num_required > 0
        self.makes_gradients = self.num_required == 0

    def given(self, inputs):
        """Name -> tensor, without inputs that are left out."""
        return {operand.name: tensor for operand, tensor in zip(self.inputs, inputs)
                if tensor is not None or operand.is_required}

    def model_of(self, output, inputs):
        """The first given input with an output's dimensions, with whose layout the output is allocated; or None."""
        return next((tensor for operand, tensor in zip(self.inputs, inputs)
                     if operand.dimensions == output.dimensions and tensor is not None), None)

    def shape_of(self, output, inputs):
        """The shape of an output that has no model, from the sizes of its dimensions in the inputs."""
        return tuple(size for dimension in output.dimensions for size in next(
            operand.extents(tensor)[dimension] for operand, tensor in zip(self.inputs, inputs)
            if tensor is not None and dimension in operand.dimensions))

    def needed(self, inputs, is_summed):
        """The inputs; without those that only the sum reads if `is_summed` is false."""
        return inputs if is_summed else tuple(None if one.is_for_sum else tensor for one, tensor in zip(self.inputs, inputs))


def _described(name, documentation, operands, scalars):
    inputs, outputs = [], []
    for one in operands:
        (outputs if one.pop("is_output") else inputs).append(Operand(**one))
    return Operation(name, documentation, tuple(inputs), tuple(outputs), tuple(scalars), getattr(_native, name),
                     getattr(_native, f"{name}_at_once"))


operations = {name: _described(name, *rest) for name, *rest in _native.operations()}
