"""The library's operations, as its table describes them."""

from typing import Callable, NamedTuple

from dorajit import _native

# Operands that Python's functions call otherwise.
PYTHON_NAMES = {"gain": "mag_norm_scale", "cross": "cross_term"}
_MATRIX = "rows, cols"


class Operand(NamedTuple):
    """A tensor of an operation.

    Attributes:
        name: in the table.
        python_name: in public functions and messages.
        is_matrix: of the shape that all matrices of the call have; else it has one element per channel.
        is_required: may not be left out.
    """

    name: str
    python_name: str
    is_matrix: bool
    is_required: bool


class Operation(NamedTuple):
    """One operation.

    Attributes:
        launch: (*inputs, *outputs, scale) -> the output, or a tuple of several. An output is a tensor to
            be written, an element type of a tensor to be allocated, or None where it is left out. Raises
            dorajit.Error for what no kernel takes.
    """

    name: str
    documentation: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    launch: Callable

    @property
    def has_channels(self):
        """Whether an operand has one element per channel."""
        return not all(one.is_matrix for one in self.inputs)

    @property
    def is_composition(self):
        """Whether it makes a matrix of matrices and channels whatever else is left out."""
        return self.has_channels and self.outputs[0].is_required

    @property
    def makes_gradients(self):
        """Whether each of its outputs may be left out."""
        return not any(one.is_required for one in self.outputs)

    def given(self, inputs):
        """Python's names -> the tensors, without those that are left out."""
        return {operand.python_name: tensor for operand, tensor in zip(self.inputs, inputs)
                if tensor is not None or operand.is_required}

    def model_of(self, output, inputs):
        """The input after which an output is allocated: the first of its dimensions."""
        return next((tensor for operand, tensor in zip(self.inputs, inputs)
                     if operand.is_matrix == output.is_matrix and tensor is not None), inputs[0])


def _described(name, documentation, operands):
    made = [(Operand(operand, PYTHON_NAMES.get(operand, operand), dimensions == _MATRIX, is_required),
             is_output) for operand, dimensions, is_output, is_required in operands]
    return Operation(name, documentation, tuple(one for one, is_output in made if not is_output),
                     tuple(one for one, is_output in made if is_output), getattr(_native, name))


operations = {name: _described(name, *rest) for name, *rest in _native.operations()}
