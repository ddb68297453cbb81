"""An installation is complete, self-contained, and works for others from wherever it lies.

install_test.py --build-dir DIR --source-dir DIR

Installs the build into a temporary prefix, checks what is there, then builds and runs the examples
against it, by find_package and by pkg-config, before and after the prefix is moved.
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

# What a machine without a C++ standard library has, too.
ALWAYS_THERE = re.compile(r"(libc|libm|libgcc_s|ld-linux-[\w-]+)\.so\.\d+")
_LIBSTDCXX = "libstdc++.so.6"


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


def check_notices(file, projects):
    """What is compiled in comes with its licences, whole."""
    expect(file.is_file(), f"{file} was not installed")
    parts = re.split(r"^={9,}\n(.+)\n={9,}\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    licences = dict(zip(parts[1::2], parts[2::2], strict=True))
    for project in projects:
        text = [text for headline, text in licences.items() if headline.startswith(project)]
        expect(text and re.search(r"Permission is hereby\s+granted|Redistributions\s+in\s+binary\s+form",
                                  text[0]), f"{file.name} has no licence of {project}")
    say(f"licences of {', '.join(projects)}")


class Installation:
    """A prefix and what stands where in it."""

    def __init__(self, build, prefix):
        self.prefix = prefix
        self.library_dir = prefix / cache_entry(build, "CMAKE_INSTALL_LIBDIR")
        self.include_dir = prefix / cache_entry(build, "CMAKE_INSTALL_INCLUDEDIR")
        self.package_dir = self.library_dir / "cmake" / "dorajit"
        self.pkgconfig_dir = self.library_dir / "pkgconfig"
        self.documents = prefix / cache_entry(build, "CMAKE_INSTALL_DATAROOTDIR") / "doc" / "dorajit"
        self.library = self.library_dir / "libdorajit.so"


def check_files(installation):
    files = [installation.library, installation.pkgconfig_dir / "dorajit.pc"]
    files += [installation.include_dir / name
              for name in ("dorajit/dorajit.h", "dorajit/dorajit.hpp", "dlpack/dlpack.h")]
    files += [installation.package_dir / f"dorajit{part}.cmake"
              for part in ("Config", "ConfigVersion", "Targets")]
    for file in files:
        expect(file.is_file(), f"{file} was not installed")
    say(f"installed: {len(files)} files that others build with")


def check_units(installation):
    """systemd finds the daemon's program where it was installed."""
    folder = installation.prefix / "lib" / "systemd" / "user"
    expect((folder / "dorajitd.socket").is_file(), "dorajitd.socket was not installed")
    service = (folder / "dorajitd.service").read_text(encoding="utf-8")
    program = re.search(r"^ExecStart=(\S+)", service, re.MULTILINE)[1]
    expect(pathlib.Path(program) == installation.prefix / "bin" / "dorajitd",
           f"dorajitd.service starts {program}")
    run([program, "--version"])
    say("units: a service and its socket")


def check_manual(installation):
    """Every command of the program has its page, and shells find what completes them."""
    program = installation.prefix / "bin" / "dorajit"
    listing = run([program, "--help"]).split("\nSubcommands:\n")[1].split("\n\n")[0]
    commands = re.findall(r"^  ([\w-]+) ", listing, re.MULTILINE)
    expect(len(commands) > 10, f"dorajit --help lists only {commands}")
    share = installation.prefix / "share"
    pages = {page.name for page in (share / "man" / "man1").iterdir()}
    expect(pages == {"dorajit.1"} | {f"dorajit-{command}.1" for command in commands},
           f"the manual pages are {sorted(pages)}")
    for file in ("bash-completion/completions/dorajit", "zsh/site-functions/_dorajit",
                 "fish/vendor_completions.d/dorajit.fish"):
        expect((share / file).is_file(), f"share/{file} was not installed")
    say(f"manual pages: {len(pages)}; completions for bash, zsh and fish")


def check_relocatable(installation, build, source):
    for file in [installation.pkgconfig_dir / "dorajit.pc", *installation.package_dir.iterdir()]:
        text = file.read_text(encoding="utf-8")
        for path in (installation.prefix, build, source):
            # A path begins where no other does: /dorajit is no part of ${prefix}/include/dorajit.
            named = re.search(r"(?<![\w./}-])" + re.escape(str(path)) + r"(?![\w.-])", text)
            expect(not named, f"{file.name} names {path}, so it cannot be moved")
    dynamic = run([tool("readelf"), "-d", installation.library])
    expect("RUNPATH" not in dynamic and "RPATH" not in dynamic, "libdorajit.so has a run path")
    say("relocatable: no file names the prefix, the build or the source")


def check_needed_libraries(installation, build):
    dynamic = run([tool("readelf"), "-d", installation.library])
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    expect(needed, "readelf shows no needed library at all")
    # Built by GCC, the library needs this system's libstdc++; built by clang, it carries libc++.
    compiler = pathlib.Path(cache_entry(build, "CMAKE_CXX_COMPILER")).name
    allowed = set() if "clang" in compiler else {_LIBSTDCXX}
    foreign = [name for name in needed if not ALWAYS_THERE.fullmatch(name) and name not in allowed]
    expect(not foreign, f"libdorajit.so needs {', '.join(foreign)}")
    say(f"needs only: {' '.join(needed)}")


def check_exported_symbols(installation):
    listing = run([tool("nm"), "-D", "--defined-only", installation.library])
    exported = {line.split()[-1].split("@")[0] for line in listing.splitlines()}
    header = (installation.include_dir / "dorajit" / "dorajit.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"^DORAJIT_API[\w\s*]*?\b(dorajit_\w+)\(", header, re.MULTILINE))
    expect(declared, "dorajit.h declares no function")
    expect(exported == declared,
           f"exported but not declared: {sorted(exported - declared)}; "
           f"declared but not exported: {sorted(declared - exported)}")
    say(f"exports: exactly the {len(exported)} functions of dorajit.h")


def clean_environment(**changes):
    """Ours, without what would lead to another installation or another cache."""
    unwanted = ("DORAJIT_", "LD_LIBRARY_PATH", "CMAKE_PREFIX_PATH", "PKG_CONFIG_PATH", "CFLAGS",
                "CXXFLAGS", "LDFLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    # Not that of whoever runs this.
    kept["DORAJIT_DAEMON_DIR"] = "/nonexistent"
    return {**kept, **{name: str(value) for name, value in changes.items()}}


def build_with_cmake(installation, example, folder):
    run([tool("cmake"), "-G", "Ninja", "-S", example, "-B", folder,
         f"-DCMAKE_PREFIX_PATH={installation.prefix}", "-DCMAKE_C_COMPILER=gcc",
         "-DCMAKE_CXX_COMPILER=g++"], env=clean_environment())
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
    for name in ("compose_c", "compose_cpp", "train_cpp"):
        program = name.split("_")[0]
        for way, build_example in ways.items():
            folder = scratch / f"{name}-{way}"
            build_example(installation, source / "examples" / name, folder)
            say(f"{name} with {way}: {run_example(folder / program, folder / 'cache')}")


def check_shipped_databases(installation, scratch):
    """Results that lie in the installation's folder serve a user who has none."""
    program = installation.prefix / "bin" / "dorajit"
    databases = installation.prefix / "share" / "dorajit" / "databases"
    shipped = {file.stem for file in databases.glob("*.db")}
    expect("nvidia_h200" in shipped, f"{databases} holds only {sorted(shipped)}")
    problem = ["--device", "cpu", "--shape", "8x512", "--type", "f32", "--json"]
    run([program, "tune", "--cache-dir", scratch / "tuned", *problem], env=clean_environment())
    lines = scratch / "tuned.jsonl"
    run([program, "export", "--cache-dir", scratch / "tuned", "--out", lines],
        env=clean_environment())
    run([program, "import", "--cache-dir", scratch / "imported", lines], env=clean_environment())
    shutil.copy(scratch / "imported" / "tuning.db", databases / "this_machine.db")
    databases.chmod(0o555)
    explained = run([program, "explain", "--cache-dir", scratch / "fresh", *problem],
                    env=clean_environment())
    rung = json.loads(explained)["problems"][0]["rung"]
    expect(rung == "shipped database", f"the problem of a shipped winner is answered by: {rung}")
    explained = run([program, "explain", "--cache-dir", scratch / "fresh", *problem],
                    env=clean_environment(DORAJIT_DATABASES="none"))
    expect(json.loads(explained)["problems"][0]["rung"] == "default", "none is not none")
    databases.chmod(0o755)
    say(f"shipped databases: {', '.join(sorted(shipped))}; they serve")


def check_installation(build, source, scratch):
    installation = Installation(build, scratch / "prefix")
    run([tool("cmake"), "--install", build, "--prefix", installation.prefix])
    check_files(installation)
    check_notices(installation.documents / "THIRD_PARTY_NOTICES",
                  ("nlohmann/json", "xxHash", "CLI11", "libuv"))
    check_manual(installation)
    check_units(installation)
    check_relocatable(installation, build, source)
    check_needed_libraries(installation, build)
    check_exported_symbols(installation)
    check_examples(installation, source, scratch / "first")

    moved = Installation(build, scratch / "elsewhere" / "moved")
    moved.prefix.parent.mkdir()
    installation.prefix.rename(moved.prefix)
    say("moved the prefix")
    check_examples(moved, source, scratch / "second")
    (scratch / "databases").mkdir()
    check_shipped_databases(moved, scratch / "databases")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build-dir", type=pathlib.Path, required=True)
    parser.add_argument("--source-dir", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dorajit-install-") as scratch:
        try:
            check_installation(arguments.build_dir.resolve(), arguments.source_dir.resolve(),
                               pathlib.Path(scratch).resolve())
        except Failure as failure:
            print(f"FAILED: {failure}", file=sys.stderr)
            return 1
    say("the installation is good")
    return 0


if __name__ == "__main__":
    sys.exit(main())
