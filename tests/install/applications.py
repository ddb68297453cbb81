"""Applications that others build against an installation."""

import pathlib
import re
import shutil

from installation import cache_entry, clean_environment, expect, run, say, tool

# What the C++ interface is compiled with elsewhere; the first name that is there.
COMPILERS = (("g++",), ("clang++", "clang++-19"))
CALLS = ("engine_create", "compose", "compose_inner", "compose_residual", "backward",
         "residual_backward", "backward_workspace", "residual_backward_workspace", "norm_assembly",
         "warmup", "explain", "launch", "workspace_bytes", "operation", "operands",
         "engine_statistics", "engine_plan_count")


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


def run_example(program, cache_dir):
    environment = clean_environment(DORAJIT_CACHE_DIR=cache_dir, DORAJIT_TUNE_SECONDS="0.2")
    output = run([program], env=environment)
    expect(" 0 elements differ" in output, f"{program} printed: {output}")
    again = run([program], env=environment)
    expect("(0 compilations, 0 trials)" in again, f"the second run of {program} printed: {again}")
    return output.strip()


def check_examples(installation, source, scratch):
    ways = {"find_package": build_with_cmake, "pkg-config": build_with_pkg_config}
    for name in ("compose_c", "compose_cpp", "layer_cpp", "train_cpp"):
        program = name.split("_")[0]
        for way, build_example in ways.items():
            folder = scratch / f"{name}-{way}"
            build_example(installation, source / "examples" / name, folder)
            say(f"{name} with {way}: {run_example(folder / program, folder / 'cache')}")


def check_failing_calls(installation, source, scratch):
    """Errors say what is wrong, whatever compiler the application is built with, and do not leak."""
    for names in COMPILERS:
        compiler = next((name for name in names if shutil.which(name)), None)
        if compiler is None:
            say(f"failing calls: {names[0]} is not here, so nothing is built with it")
            continue
        ways = {"no standard": (), "C++14": ("-DCMAKE_CXX_STANDARD=14",)}
        if names[0] == "g++":
            # Which finds what was not destroyed when the program ends.
            ways["address sanitizer"] = ("-DCMAKE_CXX_FLAGS=-fsanitize=address",)
        for way, definitions in ways.items():
            folder = scratch / f"{names[0]}-{way.replace(' ', '-')}"
            build_with_cmake(installation, source / "tests" / "install" / "failing_calls", folder,
                             *definitions, compiler=compiler)
            output = run([folder / "failing_calls"], env=clean_environment())
            for call in CALLS:
                expect(re.search(rf"^{call}: .{{20}}", output, re.MULTILINE),
                       f"an error of {call} says nothing with {compiler}: {output}")
            version = re.search(r"^version ([\d.]+), library \d+, package ([\d.]+)$", output,
                                re.MULTILINE)
            expect(version and version[1] == version[2], f"the versions differ: {output}")
            say(f"failing calls with {compiler}, {way}: {len(CALLS)} errors say what is wrong")
