"""clang-tidy over a build tree's sources: tidy.py CLANG_TIDY ROOT BUILD_TREE JOBS [PATH...]

A source that passed before is passed over while its preprocessed text, its command and .clang-tidy
are the same. With PATHs, relative to ROOT, only those sources are looked at.
"""

import concurrent.futures
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys


def sources(root, build_tree, wanted):
    """Pairs of a source of our own, relative to `root`, and its compile command."""
    for entry in json.loads((build_tree / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(root) and not path.is_relative_to(root / "build"):
            name = str(path.relative_to(root))
            if not wanted or name in wanted:
                yield name, entry


def fingerprint(root, entry):
    """A hash of all that clang-tidy sees, comments included since they may silence a check.

    None if the source cannot be preprocessed; clang-tidy then says why.
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
    return hashlib.sha256(b"\0".join([result.stdout, entry["command"].encode(), checks])).hexdigest()


def tidy(program, root, build_tree, passed, name, entry):
    """Whether the source passes."""
    key = fingerprint(root, entry)
    if key and (passed / key).exists():
        return True
    result = subprocess.run([program, "-p", str(build_tree), "--quiet", name], cwd=root,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
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
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        results = [pool.submit(tidy, program, root, build_tree, passed, name, entry)
                   for name, entry in sources(root, build_tree, set(wanted))]
    faulty = sum(not result.result() for result in results)
    print(f"clang-tidy: {len(results)} sources, {faulty} with faults")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
