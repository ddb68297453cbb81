"""Runs clang-tidy on a build tree's sources: tidy.py CLANG_TIDY ROOT BUILD_TREE JOBS [PATH...]

Sources of one target are checked together, one after the other in one translation unit, because most of
the time is spent in the headers that they share. If clang-tidy has faults to report, or if the sources
define equal names, each source of the batch is checked by itself. A batch that passed before is skipped
while its preprocessed text, its command and .clang-tidy are unchanged. With PATHs, relative to ROOT, only
those sources are checked, each by itself.
"""

import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys


# In its deep mode the static analyzer takes four fifths of clang-tidy's time. The shallow mode still
# finds null pointers and leaks within a function and the small functions that it calls.
SHALLOW_ANALYZER = [f"--extra-arg={word}" for word in
                    ("-Xclang", "-analyzer-config", "-Xclang", "mode=shallow")]
PRECOMPILED = re.compile(r" -Winvalid-pch| -Xclang -include(-pch)? -Xclang \S+| -include \S+cmake_pch\S+")
BATCH = 8


def flags(entry):
    """The words of a compile command, without those that name the source and the object. Also without
    precompiled headers: clang-tidy cannot read those of another compiler version, and a source has to
    include what it uses."""
    words = shlex.split(PRECOMPILED.sub("", entry["command"]))
    del words[words.index("-o"):words.index("-o") + 2]
    words.remove("-c")
    words.remove(entry["file"])
    return words


def sources(root, entries, wanted):
    """Triples of a source of this project, its flags and the folder that they are relative to.

    A source of several targets is checked once, with the flags of the first target.
    """
    seen = set()
    for entry in entries:
        path = pathlib.Path(entry["file"])
        if path in seen or not path.is_relative_to(root) or path.is_relative_to(root / "build"):
            continue
        seen.add(path)
        if not wanted or str(path.relative_to(root)) in wanted:
            yield path, flags(entry), entry["directory"]


def batches(root, entries, wanted):
    """Lists of sources with equal flags and equal checks, with those flags and the folder."""
    groups = {}
    for path, words, folder in sources(root, entries, wanted):
        is_test = path.is_relative_to(root / "tests")
        groups.setdefault((*words, folder, is_test), ([], words, folder))[0].append(path)
    size = 1 if wanted else BATCH
    for paths, words, folder in groups.values():
        for first in range(0, len(paths), size):
            yield paths[first:first + size], words, folder


def write_unit(unit, paths):
    """One source of several, with the lines of each. Unlike #include this keeps them part of the main
    file, which alone the static analyzer looks at."""
    unit.write_text("".join(f'#line 1 "{path}"\n{path.read_text(encoding="utf-8")}\n' for path in paths),
                    encoding="utf-8")


def fingerprint(root, unit, words, folder):
    """A hash of clang-tidy's input, including comments, because they may disable a check.

    None if the source cannot be preprocessed; clang-tidy then reports the reason.
    """
    result = subprocess.run([*words, "-E", "-C", str(unit)], cwd=folder, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, check=False)
    if result.returncode != 0:
        return None
    checks = b"".join((root / name).read_bytes() for name in (".clang-tidy", "tests/.clang-tidy"))
    command = " ".join([*words, *SHALLOW_ANALYZER])
    return hashlib.sha256(b"\0".join([result.stdout, command.encode(), checks])).hexdigest()


def check(program, root, unit, config, words, folder):
    """clang-tidy's report on a source, and whether it has no faults."""
    result = subprocess.run([program, "--quiet", f"--config-file={config}", *SHALLOW_ANALYZER, str(unit), "--",
                             *words[1:]], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True, check=False)
    return result.stdout, result.returncode == 0


def tidy(program, root, passed, batch):
    """The number of sources of a batch that have faults."""
    paths, words, folder = batch
    is_test = paths[0].is_relative_to(root / "tests")
    config = root / ("tests/.clang-tidy" if is_test else ".clang-tidy")
    unit = paths[0]
    if len(paths) > 1:
        name = hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:16]
        unit = passed / f"{name}.cc"
        write_unit(unit, paths)
    key = fingerprint(root, unit, words, folder)
    if key and (passed / key).exists():
        return 0
    faulty = 0
    if len(paths) == 1 or not check(program, root, unit, config, words, folder)[1]:
        for path in paths:
            report, is_clean = check(program, root, path, config, words, folder)
            print(report, end="", flush=True)
            faulty += not is_clean
    if key and not faulty:
        (passed / key).touch()
    return faulty


def main():
    program, root, build_tree, jobs, *wanted = sys.argv[1:]
    root, build_tree = pathlib.Path(root), pathlib.Path(build_tree)
    passed = build_tree / "tidy"
    passed.mkdir(exist_ok=True)
    entries = json.loads((build_tree / "compile_commands.json").read_text(encoding="utf-8"))
    work = list(batches(root, entries, set(wanted)))
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        faulty = sum(pool.map(lambda batch: tidy(program, root, passed, batch), work))
    print(f"clang-tidy: {sum(len(paths) for paths, _, _ in work)} sources, {faulty} with faults")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
