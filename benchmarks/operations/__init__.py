"""The operations that kernels.py measures.

The class of an operation allocates operand sets for a case and gives the bytes that each set moves.
Its methods with names of contenders (dorajit, triton, torch_eager, ...) return a function that enqueues
one run on the set with a given index. expected() returns the results that a run on set 0 must have written to
outputs().
"""

from operations.backward import Backward
from operations.compose import Compose
from operations.compose_inner import ComposeInner
from operations.norm_assembly import NormAssembly

OPERATIONS = {operation.name: operation
              for operation in (Compose, ComposeInner, Backward, NormAssembly)}
