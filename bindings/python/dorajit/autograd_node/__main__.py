"""python -m dorajit.autograd_node: compiles the node and says where it lies."""

import sys

from dorajit import errors
from dorajit.autograd_node import build

try:
    print(build())
except errors.CompileError as error:
    sys.exit(f"{error.log}\n{error}")
except errors.Error as error:
    sys.exit(str(error))
