"""The compiler that a configuration chooses where the user names none, systems that it refuses, and what options leave out:
configuration_test.py CMAKE
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE = sys.argv.pop(1) if len(sys.argv) > 1 else shutil.which("cmake")
SCRIPT = pathlib.Path(__file__).parents[2] / "cmake/choose_compiler.cmake"
PROGRAM = """#!/bin/sh
case "$*" in
--version) echo "{about}" ;;
*-dumpversion) echo {version} ;;
-print-file-name=*) echo {library} ;;
esac
"""


class CompilerChoice(unittest.TestCase):
    """Compilers are given as name -> (what it is, version, whether it has libc++)."""

    def run_script(self, compilers, then, *options, **variables):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for name, (kind, version, has_library) in compilers.items():
                library = folder / "libc++abi.a"
                library.touch()
                program = folder / name
                program.write_text(PROGRAM.format(about=f"{kind} version {version}", version=version,
                                                  library=library if has_library else "libc++abi.a"))
                program.chmod(0o755)
            (folder / "run.cmake").write_text(f'cmake_minimum_required(VERSION 3.25)\ninclude("{SCRIPT}")\n{then}\n')
            done = subprocess.run([CMAKE, *options, "-P", "run.cmake"], cwd=folder, capture_output=True, text=True, check=False,
                                  env={"PATH": f"{folder}:/nonexistent", **variables})
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stderr.strip().replace(f"{folder}/", "")

    def chosen(self, compilers, *options, **variables):
        return self.run_script(compilers, 'message("${CMAKE_CXX_COMPILER}")', *options, **variables)

    def refusal(self, compiler, *arguments):
        command = " ".join(["cxx", *arguments])
        return self.run_script({"cxx": compiler}, f'dorajit_refuse_compiler(reason {command})\nmessage("${{reason}}")')

    def test_newer_compiler_under_another_name_is_chosen(self):
        old = {"c++": ("c++ (Debian)", "12.2.0", False), "g++": ("g++ (Debian)", "12.2.0", False)}
        clang = {"clang++-19": ("Debian clang", "19.1.7", True)}
        self.assertEqual(self.chosen(old | clang), "clang++-19")
        self.assertEqual(self.chosen(old | {"g++-13": ("g++-13 (Debian)", "13.3.0", False)}), "g++-13")
        self.assertEqual(self.chosen(old), "")

    def test_compiler_without_its_library_is_passed_over(self):
        self.assertEqual(self.chosen({"clang++-19": ("Debian clang", "19.1.7", False),
                                      "c++": ("c++ (Ubuntu)", "13.2.0", False)}), "c++")

    def test_choice_of_the_user_is_kept(self):
        self.assertEqual(self.chosen({"clang++-19": ("Debian clang", "19.1.7", True)}, CXX="g++-12"), "")

    def test_compiler_of_python_is_passed_over_in_a_wheel_if_it_is_old(self):
        compilers = {"clang++-19": ("Debian clang", "19.1.7", True), "g++": ("g++ (Debian)", "12.2.0", False),
                     "g++-13": ("g++-13 (Debian)", "13.3.0", False)}
        self.assertEqual(self.chosen(compilers, "-DSKBUILD=2", CXX="g++"), "clang++-19")
        self.assertEqual(self.chosen(compilers, "-DSKBUILD=2", CXX="g++-13"), "")
        self.assertEqual(self.chosen(compilers, "-DSKBUILD=2"), "clang++-19")

    def test_refusals_name_the_version(self):
        self.assertEqual(self.refusal(("Ubuntu clang", "18.1.3", True)), "it is clang 18.1.3, which is too old")
        self.assertEqual(self.refusal(("g++ (Debian)", "12.2.0", False)), "it is GCC 12.2.0, which is too old")
        self.assertIn("without libc++: install", self.refusal(("clang", "20.1.0", False)))
        self.assertEqual(self.refusal(("icx", "''", False)), "it is neither GCC nor clang")
        self.assertEqual(self.refusal(("g++", "14.2.0", False)), "")


class Configuration(unittest.TestCase):
    def configure(self, *options):
        """(exit code, output in one line, what an installation would contain)."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([CMAKE, "-S", SCRIPT.parents[1], "-B", folder, "-DDORAJIT_BUILD_TESTS=OFF", *options],
                                  capture_output=True, text=True, check=False)
            script = pathlib.Path(folder, "cmake_install.cmake")
            return done.returncode, " ".join(done.stderr.split()), script.read_text() if script.is_file() else ""

    def test_other_systems_are_refused_by_name(self):
        code, errors, _ = self.configure("-DCMAKE_SYSTEM_NAME=FreeBSD")
        self.assertNotEqual(code, 0)
        self.assertIn("dorajit runs on Linux only, not on FreeBSD", errors)

    def test_each_program_is_installed_without_the_other(self):
        for left_out, kept, other in (("DAEMON", "dorajit", "dorajitd"), ("CLI", "dorajitd", "dorajit")):
            code, errors, installs = self.configure(f"-DDORAJIT_BUILD_{left_out}=OFF")
            self.assertEqual(code, 0, errors)
            for place in ("bin/", 'RENAME "'):  # the program, its completion
                self.assertIn(f'{place}{kept}"', installs)
                self.assertNotIn(f'{place}{other}"', installs)
            self.assertEqual("dorajitd.service" in installs, kept == "dorajitd")


class EmbeddedSources(unittest.TestCase):
    """The identity of a kernel's sources, which keys compiled kernels and tuning data."""

    def identity(self, text):
        with tempfile.TemporaryDirectory() as folder:
            source, out = pathlib.Path(folder, "one.h"), pathlib.Path(folder, "out.cc")
            source.write_text(text)
            subprocess.run([CMAKE, f"-DFILES=one.h={source}", "-DHEADER=x.h", "-DNAMESPACE=x", f"-DOUTPUT={out}", "-P",
                            SCRIPT.with_name("embed_sources.cmake")], check=True)
            return re.search('"([0-9a-f]{64})"', out.read_text())[1]

    def test_comments_and_blank_lines_do_not_count(self):
        code = "#pragma once\nint f(int a[]) {\n  return a[0] / 2;\n}\n"
        self.assertEqual(self.identity(code), self.identity(
            "// What f is.\n#pragma once\n\n\nint f(int a[]) {  // a; b [c\n  // \"half\"\n  return a[0] / 2;\n}\n\n"))
        for other in ("/ 2", "/ 3"), ("a[0]", "a[1]"), ("return", "return\n "), ("  ", " "):
            self.assertNotEqual(self.identity(code), self.identity(code.replace(*other)), other)


if __name__ == "__main__":
    unittest.main()
