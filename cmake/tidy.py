"""Runs clang-tidy on a build tree's sources: tidy.py CLANG_TIDY ROOT BUILD_TREE JOBS [PATH...]

A source that passed before is skipped while its preprocessed text, its command and .clang-tidy
are unchanged. With PATHs, relative to ROOT, only those sources are checked.
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


def read_commands(build_tree):
    """The compile commands, without precompiled headers: clang-tidy cannot read those of another compiler
    version, and a source has to include what it uses."""
    entries = json.loads((build_tree / "compile_commands.json").read_text(encoding="utf-8"))
    for entry in entries:
        entry["command"] = PRECOMPILED.sub("", entry["command"])
    return entries


def sources(root, entries, wanted):
    """Pairs of a source of this project, relative to `root`, and its compile command.

    A source of several targets is checked once, with the command of the first target.
    """
    seen = set()
    for entry in entries:
        if entry["file"] in seen:
            continue
        seen.add(entry["file"])
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(root) and not path.is_relative_to(root / "build"):
            name = str(path.relative_to(root))
            if not wanted or name in wanted:
                yield name, entry


def fingerprint(root, entry):
    """A hash of clang-tidy's input, including comments, because they may disable a check.

    None if the source cannot be preprocessed; clang-tidy then reports the reason.
    """
    command = shlex.split(entry["command"])
    command[command.index("-c")] = "-E"
    output = command.index("-o")
    del command[output:output + 2]
    result = subprocess.run([*command, "-C"], cwd=entry["directory"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, check=False)
    if result.returncode != 0:
        return None
    checks = b"".join((root / name).read_bytes() for name in (".clang-tidy", "tests/.clang-tidy"))
    command = " ".join([entry["command"], *SHALLOW_ANALYZER])
    return hashlib.sha256(b"\0".join([result.stdout, command.encode(), checks])).hexdigest()


def tidy(program, root, passed, name, entry):
    """Whether the source passes; `passed` has the compile commands, too."""
    key = fingerprint(root, entry)
    if key and (passed / key).exists():
        return True
    result = subprocess.run([program, "-p", str(passed), "--quiet", *SHALLOW_ANALYZER, name],
                            cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                            check=False)
    if key and result.returncode == 0:
        (passed / key).touch()
    print(result.stdout, end="", flush=True)
    return result.returncode == 0


def main():
    program, root, build_tree, jobs, *wanted = sys.argv[1:]
    root, build_tree = pathlib.Path(root), pathlib.Path(build_tree)
    passed = build_tree / "tidy"
    passed.mkdir(exist_ok=True)
    entries = read_commands(build_tree)
    (passed / "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        results = [pool.submit(tidy, program, root, passed, name, entry)
                   for name, entry in sources(root, entries, set(wanted))]
    faulty = sum(not result.result() for result in results)
    print(f"clang-tidy: {len(results)} sources, {faulty} with faults")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
