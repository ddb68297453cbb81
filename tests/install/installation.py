"""An installed prefix, and helpers of the checks."""

import os
import re
import shutil
import subprocess


class Failure(Exception):
    pass


def say(text):
    print(text, flush=True)


def expect(condition, complaint):
    if not condition:
        raise Failure(complaint)


def run(command, **kwargs):
    """The standard output of a command that must succeed."""
    command = [str(part) for part in command]
    result = subprocess.run(command, text=True, capture_output=True, check=False, **kwargs)
    if result.returncode != 0:
        raise Failure(f"{' '.join(command)} ended with {result.returncode}\n"
                      f"{result.stdout}{result.stderr}")
    return result.stdout


def tool(name):
    path = shutil.which(name)
    expect(path, f"{name} is not on PATH: ./dev setup installs it")
    return path


def cache_entry(build, name):
    """A value of the build's CMakeCache.txt."""
    text = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    match = re.search(rf"^{name}:\w+=(.*)$", text, re.MULTILINE)
    expect(match, f"{build}/CMakeCache.txt has no {name}")
    return match[1]


def clean_environment(**changes):
    """This process's environment, without variables that select another installation or cache."""
    unwanted = ("DORAJIT_", "LD_LIBRARY_PATH", "CMAKE_PREFIX_PATH", "PKG_CONFIG_PATH", "CFLAGS",
                "CXXFLAGS", "LDFLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    # Do not use a daemon of the user who runs the test.
    kept["DORAJIT_DAEMON_DIR"] = "/nonexistent"
    return {**kept, **{name: str(value) for name, value in changes.items()}}


class Installation:
    """A prefix, and the paths in it."""

    def __init__(self, build, prefix):
        self.prefix = prefix
        self.library_dir = prefix / cache_entry(build, "CMAKE_INSTALL_LIBDIR")
        self.include_dir = prefix / cache_entry(build, "CMAKE_INSTALL_INCLUDEDIR")
        self.package_dir = self.library_dir / "cmake" / "dorajit"
        self.pkgconfig_dir = self.library_dir / "pkgconfig"
        self.documents = prefix / cache_entry(build, "CMAKE_INSTALL_DATAROOTDIR") / "doc" / "dorajit"
        self.library = self.library_dir / "libdorajit.so"
