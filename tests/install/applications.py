"""Builds and runs applications against an installation."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

from installation import cache_entry, clean_environment, expect, run, say, tool

# Compilers of applications; of each tuple the first name that is found.
COMPILERS = (("g++",), ("clang++", "clang++-19"))
CALLS = ("engine_create", "compose", "compose_inner", "compose_residual", "backward",
         "residual_backward", "backward_workspace", "residual_backward_workspace", "norm_assembly",
         "warmup", "explain", "launch", "launch_scalars", "workspace_bytes",
         "workspace_bytes_of_none", "operation", "operands", "engine_statistics", "explain_at")
EXAMPLES = ("compose_c", "compose_cpp", "layer_cpp")
# Calls whose kernel the compiler refuses; their errors have its log.
COMPILED = ("compiled_compose", "compiled_warmup", "compiled_launch")


def build_with_cmake(installation, example, folder, *definitions, compiler="g++"):
    c_compiler = compiler.replace("clang++", "clang").replace("g++", "gcc")
    run([tool("cmake"), "-G", "Ninja", "-S", example, "-B", folder,
         f"-DCMAKE_PREFIX_PATH={installation.prefix}", f"-DCMAKE_C_COMPILER={c_compiler}",
         f"-DCMAKE_CXX_COMPILER={compiler}", *definitions], env=clean_environment())
    found = cache_entry(folder, "dorajit_DIR")
    expect(pathlib.Path(found) == installation.package_dir, f"find_package found {found}")
    run([tool("cmake"), "--build", folder], env=clean_environment())


def build_with_pkg_config(installation, example, folder):
    shutil.copytree(example, folder)
    run([tool("make"), "-C", folder, "CC=gcc", "CXX=g++"],
        env=clean_environment(PKG_CONFIG_PATH=installation.pkgconfig_dir))


def run_example(program, script):
    """What it prints. script: checks the results that the program writes to a folder; without it
    the program checks them itself."""
    folder = program.parent
    environment = clean_environment(DORAJIT_CACHE_DIR=folder / "cache", DORAJIT_TUNE_SECONDS="0.2")
    command = [program, folder] if script.exists() else [program]
    output = run(command, env=environment)
    if not script.exists():
        expect(" 0 elements differ" in output, f"{program} printed: {output}")
    elif importlib.util.find_spec("numpy"):
        output += run([sys.executable, script, folder], env=environment)
    else:
        output += f"{sys.executable} has no NumPy: the results are not checked"
    again = run(command, env=environment)
    expect("(0 compilations, 0 trials)" in again, f"the second run of {program} printed: {again}")
    return output.strip()


def check_examples(installation, source, scratch, names=EXAMPLES):
    ways = {"find_package": build_with_cmake, "pkg-config": build_with_pkg_config}
    for name in names:
        program = name.split("_")[0]
        example = source / "examples" / name
        for way, build_example in ways.items():
            folder = scratch / f"{name}-{way}"
            build_example(installation, example, folder)
            say(f"{name} with {way}: {run_example(folder / program, example / 'check.py')}")


def make_refusing_driver(source, folder):
    """A CUDA driver with one device, and an NVRTC that refuses every kernel."""
    folder.mkdir(parents=True)
    for name in ("libcuda.so.1", "libnvrtc.so.13"):
        run([tool("gcc"), "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-o", folder / name,
             source / "tests" / "python" / "fakes" / "cuda.c"])
    return clean_environment(LD_LIBRARY_PATH=folder, DORAJIT_NVRTC=folder, DORAJIT_DATABASES="none")


def find_compiler(names):
    found = next((name for name in names if shutil.which(name)), None)
    expect(found, f"{' or '.join(names)} is not on PATH: ./dev setup installs it")
    return found


def check_failing_calls(installation, source, scratch):
    """Errors have messages and do not leak, whatever compiler the application is built with."""
    environment = make_refusing_driver(source, scratch / "driver")
    for names in COMPILERS:
        compiler = find_compiler(names)
        ways = {"no standard": (), "C++14": ("-DCMAKE_CXX_STANDARD=14",)}
        if names[0] == "g++":
            # It includes a leak check at the end of the program.
            ways["address sanitizer"] = ("-DCMAKE_CXX_FLAGS=-fsanitize=address",)
        for way, definitions in ways.items():
            folder = scratch / f"{names[0]}-{way.replace(' ', '-')}"
            build_with_cmake(installation, source / "tests" / "install" / "failing_calls", folder,
                             *definitions, compiler=compiler)
            output = run([folder / "failing_calls"], env=environment)
            for call in CALLS + COMPILED:
                expect(re.search(rf"^{call}: .{{20}}", output, re.MULTILINE),
                       f"an error of {call} says nothing with {compiler}: {output}")
            for call in COMPILED:
                expect(re.search(rf"^{call} log: .*no such luck", output, re.MULTILINE),
                       f"an error of {call} has no log with {compiler}: {output}")
            version = re.search(r"^version ([\d.]+), library \d+, package ([\d.]+)$", output,
                                re.MULTILINE)
            expect(version and version[1] == version[2], f"the versions differ: {output}")
            say(f"failing calls with {compiler}, {way}: {len(CALLS + COMPILED)} errors say what is "
                f"wrong, {len(COMPILED)} of them have a compiler's log")


def check_refused_dialects(installation, scratch):
    """The C++ headers say what they need, and nothing else follows."""
    source = scratch / "application.cpp"
    source.write_text("#include <dorajit/dorajit.hpp>\nint main() { dorajit::Engine engine; }\n", encoding="utf-8")
    for options, said in ((["-std=c++14"], "needs C++17"), (["-std=c++17", "-fno-exceptions"], "throws exceptions")):
        for names in COMPILERS:
            done = subprocess.run([find_compiler(names), *options, "-fsyntax-only", f"-I{installation.include_dir}", source],
                                  text=True, capture_output=True, check=False)
            expect(done.returncode != 0 and said in done.stderr and done.stderr.count("error:") == 2,
                   f"{names[0]} {' '.join(options)} printed: {done.stderr}")
    say("C++14 and -fno-exceptions are refused with what the headers need")
