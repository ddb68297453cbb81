"""Checks that an installation is complete, self-contained and relocatable.

install_test.py --build-dir DIR --source-dir DIR

Installs the build into a temporary prefix, checks its files, then builds and runs the examples
against it, with find_package and with pkg-config, before and after the prefix is moved.
"""

import argparse
import json
import pathlib
import re
import sys
import tempfile

from applications import check_examples, check_failing_calls, check_refused_dialects
from installation import Failure, Installation, cache_entry, clean_environment, expect, run, say, tool

# Libraries that a machine without a C++ standard library has.
ALWAYS_THERE = re.compile(r"(libc|libm|libgcc_s|ld-linux-[\w-]+)\.so\.\d+")
_LIBSTDCXX = "libstdc++.so.6"


def check_notices(file, projects):
    """The notices contain the complete licence of each project that is compiled in."""
    expect(file.is_file(), f"{file} was not installed")
    parts = re.split(r"^={9,}\n(.+)\n={9,}\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    licences = dict(zip(parts[1::2], parts[2::2], strict=True))
    for project in projects:
        text = [text for headline, text in licences.items() if headline.startswith(project)]
        expect(text and re.search(r"Permission is hereby\s+granted|Redistributions\s+in\s+binary\s+form",
                                  text[0]), f"{file.name} has no licence of {project}")
    say(f"licences of {', '.join(projects)}")


def check_files(installation):
    files = [installation.library, installation.pkgconfig_dir / "dorajit.pc"]
    files += [installation.include_dir / name
              for name in ("dorajit/dorajit.h", "dorajit/dorajit.hpp", "dlpack/dlpack.h")]
    files += [installation.package_dir / f"dorajit{part}.cmake"
              for part in ("Config", "ConfigVersion", "Targets")]
    for file in files:
        expect(file.is_file(), f"{file} was not installed")
    say(f"installed: {len(files)} files for building against the library")


def check_units(installation):
    """The systemd units name the installed program of the daemon."""
    folder = installation.prefix / "lib" / "systemd" / "user"
    expect((folder / "dorajitd.socket").is_file(), "dorajitd.socket was not installed")
    service = (folder / "dorajitd.service").read_text(encoding="utf-8")
    program = re.search(r"^ExecStart=(\S+)", service, re.MULTILINE)[1]
    expect(pathlib.Path(program) == installation.prefix / "bin" / "dorajitd",
           f"dorajitd.service starts {program}")
    run([program, "--version"])
    say("units: a service and its socket")


def check_documents(installation):
    """Every relative link of an installed page leads to a file of the installation."""
    pages = sorted(installation.documents.glob("**/*.md"))
    expect({"README.md", "cli.md", "errors.md"} <= {page.name for page in pages},
           f"{installation.documents} has only {[page.name for page in pages]}")
    links = 0
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:|#", target):
                continue
            expect((page.parent / target.split("#")[0]).exists(),
                   f"{page} links to {target}, which is not installed")
            links += 1
    expect(links > 50, f"only {links} links were found in {len(pages)} pages")
    say(f"documents: {len(pages)} pages with {links} links")


def check_completion(installation):
    for program in ("dorajit", "dorajitd"):
        run(["bash", "-n", installation.prefix / "share" / "bash-completion" / "completions" / program])
    say("completion for bash")


def check_relocatable(installation, build, source):
    for file in [installation.pkgconfig_dir / "dorajit.pc", *installation.package_dir.iterdir()]:
        text = file.read_text(encoding="utf-8")
        for path in (installation.prefix, build, source):
            # Match whole paths only: /dorajit must not match in ${prefix}/include/dorajit.
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
    headers = (installation.include_dir / "dorajit").glob("*.h")
    header = "\n".join(one.read_text(encoding="utf-8") for one in headers)
    declared = set(re.findall(r"^DORAJIT_API[\w\s*]*?\b(dorajit_\w+)\(", header, re.MULTILINE))
    expect(declared, "dorajit.h declares no function")
    expect(exported == declared,
           f"exported but not declared: {sorted(exported - declared)}; "
           f"declared but not exported: {sorted(declared - exported)}")
    say(f"exports: exactly the {len(exported)} functions of the headers")


def check_shipped_databases(installation, scratch):
    """A user without own results uses the databases of the installation."""
    program = installation.prefix / "bin" / "dorajit"
    databases = installation.prefix / "share" / "dorajit" / "databases"
    shipped = {file.stem for file in databases.glob("*.db")}
    expect("nvidia_h200" in shipped, f"{databases} holds only {sorted(shipped)}")
    problem = ["--device", "cpu", "--shape", "8x512", "--type", "f32", "--json"]
    run([program, "tune", "--cache-dir", scratch / "tuned", *problem], env=clean_environment())
    run([program, "export", "--cache-dir", scratch / "tuned", "--out", databases / "this_machine.db"],
        env=clean_environment())
    databases.chmod(0o555)
    explained = run([program, "explain", "--cache-dir", scratch / "fresh", *problem],
                    env=clean_environment())
    source = json.loads(explained)["problems"][0]["source"]
    expect(source == "shipped database", f"the problem of a shipped winner is answered by: {source}")
    explained = run([program, "explain", "--cache-dir", scratch / "fresh", *problem],
                    env=clean_environment(DORAJIT_DATABASES="none"))
    expect(json.loads(explained)["problems"][0]["source"] == "default",
           "with DORAJIT_DATABASES=none a shipped database is still read")
    databases.chmod(0o755)
    say(f"shipped databases: {', '.join(sorted(shipped))}; they serve")


def check_installation(build, source, scratch):
    installation = Installation(build, scratch / "prefix")
    run([tool("cmake"), "--install", build, "--prefix", installation.prefix])
    check_files(installation)
    check_notices(installation.documents / "THIRD_PARTY_NOTICES",
                  ("nlohmann/json", "xxHash", "CLI11", "libuv"))
    check_documents(installation)
    check_completion(installation)
    check_units(installation)
    check_relocatable(installation, build, source)
    check_needed_libraries(installation, build)
    check_exported_symbols(installation)
    check_examples(installation, source, scratch / "first")
    check_refused_dialects(installation, scratch)
    check_failing_calls(installation, source, scratch / "failing")

    moved = Installation(build, scratch / "elsewhere" / "moved")
    moved.prefix.parent.mkdir()
    installation.prefix.rename(moved.prefix)
    say("moved the prefix")
    # One example per language is enough: the move only changes where headers and library are found.
    check_examples(moved, source, scratch / "second", ("compose_c", "compose_cpp"))
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
