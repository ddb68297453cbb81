"""python -m dorajit.cpp_extension: compiles the extension and prints its path."""

import sys

from dorajit import errors
from dorajit.cpp_extension import build

try:
    print(build())
except errors.CompileError as error:
    sys.exit(f"{error.log}\n{error}")
except errors.Error as error:
    sys.exit(str(error))
