"""Checks that a wheel works in a fresh environment: wheel_check.py --interpreter PYTHON WHEEL.

Called by `./dev wheel --check`. The environment has neither PyTorch nor NVRTC. With --nvrtc FOLDER, the NVRTC
in that folder is linked to where pip, conda and the system install it, and must be found there. With --emulated ROOT, the
wheel is one for 64-bit Arm, QEMU runs it with the Python in ROOT, and what starts further programs is not checked.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from install_test import (ALWAYS_THERE, Failure, check_notices, clean_environment, expect, run, say,
                          tool)


class Environment:
    """A virtual environment with the wheel and nothing else."""

    def __init__(self, interpreter, wheel, folder):
        self.folder = folder
        run([interpreter, "-m", "venv", folder])
        run([self.program("python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
             "--disable-pip-version-check", wheel])
        self.site = pathlib.Path(self.python("import sysconfig; print(sysconfig.get_path('purelib'))"))

    def program(self, name):
        return self.folder / "bin" / name

    def command(self, name, *arguments):
        """The command that runs a program of the wheel."""
        return [self.program(name), *arguments]

    def variables(self, **changes):
        scratch = self.folder / "scratch"
        return clean_environment(DORAJIT_CACHE_DIR=scratch / "cache", DORAJIT_CXX="none",
                                 DORAJIT_DAEMON_DIR=scratch / "daemon", DORAJIT_LOG="error",
                                 **changes)

    def python(self, text):
        return run([self.program("python"), "-I", "-c", text], env=self.variables()).strip()

    def result(self, *command, **variables):
        """(exit code, standard output and standard error)."""
        done = subprocess.run([str(part) for part in command], text=True, capture_output=True,
                              check=False, env=self.variables(**variables))
        return done.returncode, done.stdout + done.stderr


class EmulatedEnvironment(Environment):
    """The files of a wheel for 64-bit Arm, run by QEMU."""

    def __init__(self, root, wheel, folder):
        self.folder, self.site, self.root = folder, folder / "site", root
        self.can_import = "-cp311-" in wheel.name  # of the root's Python
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(self.site)
        (folder / "bin").symlink_to(next(self.site.glob("*.data/scripts")))

    def command(self, name, *arguments):
        program = self.root / "usr/bin/python3.11" if name == "python" else self.program(name)
        libraries = ":".join(str(self.root / folder / "aarch64-linux-gnu") for folder in ("lib", "usr/lib"))
        return ["qemu-aarch64", self.root / "lib/ld-linux-aarch64.so.1", "--library-path", libraries, program, *arguments]

    def python(self, text):
        command = self.command("python", "-c", f"import sys; sys.path.insert(0, {str(self.site)!r})\n{text}")
        return run(command, env=self.variables(PYTHONHOME=self.root / "usr")).strip()


def check_tag(wheel, processor):
    tag = re.search(rf"manylinux_2_(\d+)_{processor}\.whl$", wheel.name)
    expect(tag, f"{wheel.name} has no manylinux tag")
    return int(tag[1])


def check_needs(environment, glibc):
    """The files need only the C library, and no newer version of it than the tag says."""
    files = [*environment.site.glob("dorajit/_native*.so"), environment.program("dorajit"),
             environment.program("dorajitd")]
    expect(len(files) == 3, f"the wheel brought only {files}")
    for file in files:
        dynamic = run([tool("readelf"), "-dW", file])
        foreign = [name for name in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
                   if not ALWAYS_THERE.fullmatch(name)]
        expect(not foreign, f"{file.name} needs {', '.join(foreign)}")
        expect("RPATH" not in dynamic and "RUNPATH" not in dynamic, f"{file.name} has a run path")
        symbols = run([tool("readelf"), "-W", "--dyn-syms", file])
        newest = {}
        for symbol, minor in re.findall(r" UND (\w+)@GLIBC_2\.(\d+)", symbols):
            newest.setdefault(int(minor), []).append(symbol)
        expect(newest and max(newest) <= glibc, f"{file.name} needs glibc 2.{max(newest)}")
        say(f"{file.name}: glibc 2.{max(newest)}, for {' '.join(sorted(newest[max(newest)])[:6])}")


def check_licences(environment):
    folder = next(environment.site.glob("dorajit-*.dist-info")) / "licenses"
    expect((folder / "LICENSE").is_file(), f"{folder} has no LICENSE")
    check_notices(folder / "THIRD_PARTY_NOTICES",
                  ("nlohmann/json", "xxHash", "CLI11", "libuv", "pybind11"))


def check_without_torch(environment):
    said = environment.python("""
import dorajit
print(dorajit.__version__, dorajit.cache.stats()["trials"])
try:
    dorajit.fused_dora_compose
except ImportError as error:
    print(error)
""")
    expect("dorajit.fused_dora_compose needs PyTorch" in said and "pip install torch" in said,
           f"without PyTorch, using it says: {said}")
    say("imports without PyTorch, NVRTC and driver")


def check_autopatch(environment):
    """An interpreter that starts with DORAJIT_PATCH_PEFT tries to patch a package `peft`, which needs PyTorch."""
    package = environment.site / "peft.py"
    package.touch()
    code, said = environment.result(environment.program("python"), "-c", "import peft", DORAJIT_PATCH_PEFT="1")
    package.unlink()
    expect(code == 0 and "PEFT is not patched" in said and "needs PyTorch" in said, f"DORAJIT_PATCH_PEFT=1: {code}, {said}")
    expect((environment.site / "dorajit.start").is_file(), "the wheel brought no dorajit.start")
    say("DORAJIT_PATCH_PEFT acts at the import of PEFT")


def check_programs(environment):
    """The programs run, find the shipped databases, and report missing components."""
    version = run(environment.command("dorajit", "--version"), env=environment.variables())
    _, doctor = environment.result(*environment.command("dorajit", "doctor", "--json"))
    pieces = {piece["subject"]: piece for piece in json.loads(doctor)["pieces"]}
    shipped = next(piece for name, piece in pieces.items() if "shipped" in name)
    expect(shipped["condition"] == "good" or "nvidia_h200" in shipped["what"],
           f"the shipped databases: {shipped}")
    say(f"programs: {version.strip()}; {shipped['what']}")
    return version


def check_program_of_package(environment, version):
    expect(environment.python("import dorajit; print(dorajit.__version__)") in version, version)
    expect(environment.python("from dorajit import program; print(program.find())") == str(environment.program("dorajit")),
           "the package does not find the program that came with it")


def check_daemon(environment):
    program = environment.program("dorajit")
    code, said = environment.result(program, "daemon", "start")
    expect(code == 0, f"daemon start ended with {code}: {said}")
    code, status = environment.result(program, "daemon", "status")
    expect(code == 0 and "dorajitd is process" in status, f"its status is {status}")
    code, said = environment.result(program, "daemon", "stop")
    expect(code == 0, f"daemon stop: {said}")
    code, said = environment.result(program, "daemon", "status")
    expect(code != 0 and "start one with" in said, f"after its end the status is: {said}")
    say(f"daemon: started, {status.splitlines()[0]}, and ended")


def compile_for_a_gpu(environment, **variables):
    shutil.rmtree(environment.folder / "scratch", ignore_errors=True)
    return environment.result(environment.program("dorajit"), "prewarm", "--arch", "sm_90", "--op", "compose",
                              "--types", "bf16,bf16,f32,bf16", "--jobs", "1", "--json", **variables)


def check_nvrtc(environment, nvrtc):
    """A missing NVRTC is reported, and an NVRTC in each usual place is found."""
    code, said = compile_for_a_gpu(environment)
    expect(code != 0 and "pip install nvidia-cuda-nvrtc" in said, f"without NVRTC: {code}, {said}")
    _, said = environment.result(environment.program("dorajit"), "tune", "--device", "cuda:0",
                                 "--shape", "8x512")
    expect("NVIDIA driver" in said, f"without a driver: {said}")
    say("missing NVRTC and driver are reported by name")
    if nvrtc is None:
        return
    elsewhere = environment.folder.parent / "elsewhere"
    layouts = {
        "pip, CUDA 13": (environment.site / "nvidia" / "cu13" / "lib", {}),
        "pip, CUDA 12": (environment.site / "nvidia" / "cuda_nvrtc" / "lib", {}),
        "conda, its own environment": (environment.folder / "lib", {}),
        "conda, the active one": (elsewhere / "lib", {"CONDA_PREFIX": elsewhere}),
        "a toolkit": (elsewhere / "lib64", {"CUDA_PATH": elsewhere}),
        "the system's search": (elsewhere / "system", {"LD_LIBRARY_PATH": elsewhere / "system"}),
    }
    for layout, (folder, variables) in layouts.items():
        folder.mkdir(parents=True, exist_ok=True)
        links = [folder / file.name for file in nvrtc.glob("libnvrtc*.so*")]
        for link in links:
            link.symlink_to(nvrtc / link.name)
        code, said = compile_for_a_gpu(environment, **variables)
        expect(code == 0, f"NVRTC as {layout}: {code}, {said}")
        for link in links:
            link.unlink()
    say(f"NVRTC found as: {'; '.join(layouts)}")


def check_here(environment, nvrtc):
    check_without_torch(environment)
    check_autopatch(environment)
    check_program_of_package(environment, check_programs(environment))
    check_daemon(environment)
    check_nvrtc(environment, nvrtc)


def check_emulated(environment):
    """Started by the loader, the program does not know its own path, by which it finds databases."""
    version = run(environment.command("dorajit", "--version"), env=environment.variables())
    if environment.can_import:
        expect(environment.python("import dorajit._native; print(dorajit.__version__)") in version, version)
        say("the module is loaded")
    say(f"under QEMU: {version.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--interpreter", default=sys.executable)
    parser.add_argument("--nvrtc", type=pathlib.Path, help="a folder with libnvrtc")
    parser.add_argument("--emulated", type=pathlib.Path, help="a root of Debian's arm64 packages")
    arguments = parser.parse_args()
    os.environ.pop("VIRTUAL_ENV", None)
    with tempfile.TemporaryDirectory(prefix="dorajit-wheel-") as scratch:
        folder, wheel = pathlib.Path(scratch).resolve() / "environment", arguments.wheel.resolve()
        try:
            glibc = check_tag(wheel, "aarch64" if arguments.emulated else "x86_64")
            environment = (EmulatedEnvironment(arguments.emulated.resolve(), wheel, folder) if arguments.emulated
                           else Environment(arguments.interpreter, wheel, folder))
            check_needs(environment, glibc)
            check_licences(environment)
            if arguments.emulated:
                check_emulated(environment)
            else:
                check_here(environment, arguments.nvrtc and arguments.nvrtc.resolve())
        except Failure as failure:
            print(f"FAILED: {wheel.name}: {failure}", file=sys.stderr)
            return 1
    say(f"{wheel.name} is good")
    return 0


if __name__ == "__main__":
    sys.exit(main())
