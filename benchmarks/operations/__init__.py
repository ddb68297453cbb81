"""What kernels.py measures of each operation.

An operation's class allocates operand sets for a case and names what each set moves through memory.
Its methods called like contenders (dorajit, triton, torch_eager, ...) give a function that enqueues
one run on the set of a given index. expected() says what a run on set 0 must have written to
outputs().
"""

from operations.backward import Backward
from operations.compose import Compose
from operations.compose_inner import ComposeInner
from operations.norm_assembly import NormAssembly

OPERATIONS = {operation.name: operation
              for operation in (Compose, ComposeInner, Backward, NormAssembly)}
