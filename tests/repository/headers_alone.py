"""Every header compiles by itself: headers_alone.py {public,internal,templates} ROOT ...

public     C11 (dorajit.h) and C++17, with gcc and g++, all warnings as errors
internal   with the project's own compiler and flags, which follow ROOT; except headers that their source
           includes first, which `./dev lint` compiles without precompiled headers
templates  the sources of the CPU's JIT compiler, as C++20, with each compiler that follows ROOT
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

import project_files

_WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
_INTERNAL = ("runtime/", "cache/", "autotune/", "bindings/", "apps/", "kernel_templates/",
             "own_kernels/", "tests/")
# These need the headers of Python and pybind11, which only the build of the package has.
_WITH_PYTHON = "bindings/python/"


def _is_first_of_its_source(root, header):
    source = pathlib.Path(root, header).with_suffix(".cc")
    first = re.search(r'^#include "([^"]+)"', source.read_text(), re.MULTILINE) if source.is_file() else None
    return first is not None and first[1] == header


def _jobs(what, root, arguments):
    """Pairs of a header, as it is included, and the command that compiles an including file."""
    headers = [str(path) for path in project_files.cxx_files(root) if path.suffix in {".h", ".hpp"}]
    if what == "public":
        include = [f"-I{root}/include", *arguments]
        for header in headers:
            name = header.removeprefix("include/")
            if name != header:
                yield name, ["g++", "-xc++", "-std=c++17", *_WARNINGS, *include]
                if header.endswith(".h"):
                    yield name, ["gcc", "-xc", "-std=c11", *_WARNINGS, *include]
    elif what == "internal":
        for header in headers:
            if (header.startswith(_INTERNAL) and not header.startswith(_WITH_PYTHON)
                    and not _is_first_of_its_source(root, header)):
                yield header, [*arguments, "-xc++"]
    elif what == "templates":
        flags = ["-xc++", "-std=c++20", "-ffp-contract=off", *_WARNINGS, f"-I{root}/kernel_templates"]
        for header in headers:
            if header.startswith(("kernel_templates/cpu/", "kernel_templates/math/")):
                for compiler in filter(shutil.which, arguments):
                    yield header.removeprefix("kernel_templates/"), [compiler, *flags]


def _compile(job):
    header, command = job
    source = f'#include "{header}"\n#include "{header}"\nint main(void) {{ return 0; }}\n'
    result = subprocess.run([*command, "-fsyntax-only", "-"], input=source, text=True,
                            capture_output=True, check=False)
    if result.returncode != 0:
        return f"{header} does not compile alone: {' '.join(command)}\n{result.stderr}"
    return None


def main():
    jobs = list(_jobs(sys.argv[1], sys.argv[2], sys.argv[3:]))
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        failures = [failure for failure in pool.map(_compile, jobs) if failure]
    print(f"{len(jobs)} compilations, {len(failures)} failed")
    return project_files.report(failures)


if __name__ == "__main__":
    sys.exit(main())
