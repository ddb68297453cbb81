"""Runs clang-tidy on a build tree's sources: tidy.py CLANG_TIDY ROOT BUILD_TREE JOBS [PATH...]

Sources with equal flags are checked together, one after the other in one translation unit, because most of
the time is spent in the headers that they share. If clang-tidy has faults to report, or if the sources do not
go together after all, each source of the batch is checked by itself. A batch that passed before is skipped
while its preprocessed text, its command and .clang-tidy are unchanged. With PATHs, relative to ROOT, only
those sources are checked, each by itself.
"""

import concurrent.futures
import functools
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
# Options that only code generation heeds.
OF_CODE = re.compile(r"-O\d|-fPI[CE]|-fpch-codegen|-fvisibility\S*")
PRECOMPILED = re.compile(r" -Winvalid-pch| -Xclang -include(-pch)? -Xclang \S+| -include \S+cmake_pch\S+")
BATCH = 12
LAYERS = {"runtime", "cache", "own_kernels", "autotune", "kernel_templates"}
# A definition's name, in the layout of clang-format: `Result<Plan> make_plan(`, `struct Options {`, `int kRows =`.
DEFINED = re.compile(r"^(?!using |template|TEST|namespace|return)[A-Za-z][^(={;\n]*?(\w+)(?:\[.*\])?\s*[({=;]", re.MULTILINE)


def flags(entry):
    """The definitions of a compile command and its other words, without those that name the source and the object
    and without OF_CODE. Also without precompiled headers: clang-tidy cannot read those of another compiler
    version, and a source has to include what it uses."""
    words = shlex.split(PRECOMPILED.sub("", entry["command"]))
    if pathlib.Path(words[0]).name in ("ccache", "sccache"):
        del words[0]
    del words[words.index("-o"):words.index("-o") + 2]
    words.remove("-c")
    words.remove(entry["file"])
    definitions = dict(word.partition("=")[::2] for word in words if word.startswith("-D"))
    return definitions, [word for word in words if not word.startswith("-D") and not OF_CODE.fullmatch(word)]


def sources(root, entries, wanted):
    """Each source of this project, its flags and the folder that they are relative to.

    A source of several targets is checked once, with the flags of the first target.
    """
    seen = set()
    for entry in entries:
        path = pathlib.Path(entry["file"])
        if path in seen or not path.is_relative_to(root) or path.is_relative_to(root / "build"):
            continue
        seen.add(path)
        if not wanted or str(path.relative_to(root)) in wanted:
            yield path, *flags(entry), entry["directory"]


def local_names(path):
    """The names that a source defines in unnamed namespaces, which no other source of a batch may define."""
    text = path.read_text(encoding="utf-8")
    programs = {"main"} if re.search(r"^int main\(", text, re.M) else set()
    return programs | set(DEFINED.findall("".join(re.findall(r"^namespace \{$(.*?)^\}  // namespace$", text, re.M | re.S))))


@functools.cache
def included_folders(root, path):
    """The top folders of this project from which a file includes headers; "api" for those of the C++ API, whose names are
    those of the layers."""
    found = set()
    for name in re.findall(r'^#include ["<](.+)[">]$', path.read_text(encoding="utf-8"), re.M):
        if (root / name).is_file() or name.startswith("dorajit/"):
            found.add("api" if name.startswith("dorajit/") and name.endswith(".hpp") else name.partition("/")[0])
            found |= included_folders(root, root / name) if (root / name).is_file() else set()
    return found


def is_wrapped(path):
    """Whether nearly all of a source is in unnamed namespaces, so that a batch can have a namespace around each."""
    return path.name.endswith("_test.cc") and "/tests/" in str(path)


class Batch:
    """Sources that are checked together: their words are equal, and none defines what another one does."""

    def __init__(self, words, folder):
        self.paths, self.names, self.definitions, self.words, self.folder = [], set(), {}, words, folder

    def takes(self, names, definitions):
        return (len(self.paths) < BATCH and not names & self.names and
                all(self.definitions.get(name, value) == value for name, value in definitions.items()))

    def add(self, path, names, definitions):
        self.paths.append(path)
        self.names |= names
        self.definitions |= definitions

    def of(self, paths):
        """The batch of some of its sources."""
        part = Batch(self.words, self.folder)
        part.paths, part.definitions = paths, self.definitions
        return part

    def command(self):
        return [*self.words, *("=".join(filter(None, one)) for one in self.definitions.items())]


def batches(root, entries, wanted):
    groups = {}
    for path, definitions, words, folder in sources(root, entries, wanted):
        folders = included_folders(root, path)
        is_of_both = "api" in folders and folders & LAYERS  # goes together with no other source
        group = groups.setdefault((*words, path.is_relative_to(root / "tests"), path if is_of_both else "api" in folders), [])
        names = set() if is_wrapped(path) else local_names(path)
        batch = next((one for one in group if not wanted and one.takes(names, definitions)), None)
        if batch is None:
            batch = Batch(words, folder)
            group.append(batch)
        batch.add(path, names, definitions)
    return [batch for group in groups.values() for batch in group]


def write_unit(unit, paths):
    """One source of several, with the lines of each. Unlike #include this keeps them part of the main
    file, which alone the static analyzer looks at. Tests define equal names."""
    text = ""
    for i, path in enumerate(paths):
        source = path.read_text(encoding="utf-8")
        if is_wrapped(path):
            source = re.sub(r"^namespace \{$", f"namespace unit_{i} {{ namespace {{", source, flags=re.M)
            source = re.sub(r"^\}  // namespace$", "} }  // namespace", source, flags=re.M)
        text += f'#line 1 "{path}"\n{source}\n'
    unit.write_text(text, encoding="utf-8")


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


def check(program, unit, config, words, folder, *options):
    """clang-tidy's report on a source, and whether it has no faults."""
    result = subprocess.run([program, "--quiet", f"--config-file={config}", *SHALLOW_ANALYZER, *options, str(unit),
                             "--", *words[1:]], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True, check=False)
    return result.stdout, result.returncode == 0


def includes_twice(path):
    lines = re.findall(r"^#include .*$", path.read_text(encoding="utf-8"), re.M)
    return len(lines) != len(set(lines))


def tidy(program, root, passed, batch):
    """The number of sources of a batch that have faults."""
    paths, words, folder = batch.paths, batch.command(), batch.folder
    config = root / ("tests/.clang-tidy" if paths[0].is_relative_to(root / "tests") else ".clang-tidy")
    unit = paths[0]
    if len(paths) > 1:
        name = hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:16]
        unit = passed / f"{name}.cc"
        write_unit(unit, paths)
    key = fingerprint(root, unit, words, folder)
    if key and (passed / key).exists():
        return 0
    faulty = 0
    if len(paths) == 1:
        report, is_clean = check(program, unit, config, words, folder)
        print(report if report or is_clean else f"{unit}: clang-tidy failed without a report\n", end="", flush=True)
        faulty = not is_clean
    # Sources of a batch include the same headers; the check for that is replaced.
    elif any(map(includes_twice, paths)) or not check(program, unit, config, words, folder,
                                                      "--checks=-readability-duplicate-include")[1]:
        middle = len(paths) // 2
        faulty = sum(tidy(program, root, passed, batch.of(half)) for half in (paths[:middle], paths[middle:]))
    if key and not faulty:
        (passed / key).touch()
    return faulty


def main():
    program, root, build_tree, jobs, *wanted = sys.argv[1:]
    root, build_tree = pathlib.Path(root), pathlib.Path(build_tree)
    passed = build_tree / "tidy"
    passed.mkdir(exist_ok=True)
    entries = json.loads((build_tree / "compile_commands.json").read_text(encoding="utf-8"))
    work = batches(root, entries, set(wanted))
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        faulty = sum(pool.map(lambda batch: tidy(program, root, passed, batch), work))
    print(f"clang-tidy: {sum(len(batch.paths) for batch in work)} sources, {faulty} with faults")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
