"""Each rule finds a planted violation and accepts a valid tree."""

import pathlib
import tempfile
import unittest

import budget_rule
import docs_rule
import file_rule
import include_rule
import names_rule
import python_import_rule

GOOD_TREE = {
    "kernel_templates/CMakeLists.txt":
        'file(GLOB embedded CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" math/*.h cuda/*.cuh cuda/*/*.cuh cpu/*.h)\n'
        "list(APPEND embedded streaming_config.h\n  new_config.h)\n",
    "kernel_templates/streaming_config.h": "#pragma once\n",
    "kernel_templates/math/compose.h": '#include "streaming_config.h"\n',
    "kernel_templates/cpu/elementwise.h": '#include <emmintrin.h>\n#include "math/compose.h"\n',
    "kernel_templates/registry.h": '#include <string>\n#include "kernel_templates/streaming_config.h"\n',
    "runtime/base/error.h": "#include <string>\n",
    "runtime/launch/engine.h": '#include "runtime/base/error.h"\n#include "math/compose.h"\n',
    "cache/files/lock.h": '#include "runtime/base/error.h"\n',
    "cache/records/trial.h": '#include "cache/files/lock.h"\n',
    "cache/artifacts/code.h": '#include "cache/files/lock.h"\n',
    "cache/database/store.h": '#include <sqlite3.h>\n#include "cache/records/trial.h"\n',
    "autotune/search/tuner.h": '#include "cache/database/store.h"\n#include "runtime/launch/engine.h"\n',
    "autotune/service/protocol/message.h": '#include "runtime/base/error.h"\n',
    "autotune/service/client/asking.h": '#include "autotune/service/protocol/message.h"\n',
    "autotune/service/daemon/answering.h": '#include "autotune/service/protocol/message.h"\n',
    "autotune/sources/source.h": '#include "autotune/search/tuner.h"\n'
                                 '#include "autotune/service/client/asking.h"\n',
    "autotune/engine_factory.h": '#include "autotune/sources/source.h"\n',
    "bindings/c/engine.cc": '#include "autotune/engine_factory.h"\n#include "dorajit/dorajit.h"\n',
    "apps/cli/terminal/output.h": '#include "runtime/base/error.h"\n',
    "apps/cli/options/shapes.h": '#include "apps/cli/terminal/output.h"\n',
    "apps/cli/commands/tune.h": '#include "apps/cli/options/shapes.h"\n',
    "apps/cli/main.cc": '#include "apps/cli/commands/tune.h"\n',
    "apps/daemon/main.cc": '#include "apps/cli/terminal/output.h"\n',
    "include/dorajit/dorajit.h": "#include <dlpack/dlpack.h>\n",
    "tests/repository/line_budgets.txt": "# folder lines\n" + "".join(
        f"{folder} 450\n" for folder in ("apps autotune bindings cache docs include kernel_templates runtime runtime/base "
                                        "tests").split()),
    "docs/page.md": "\n",
    "bindings/python/dorajit/norms/gain.py": "from dorajit import errors\nfrom dorajit.operations import table\n",
}


class RulesTest(unittest.TestCase):
    def violations(self, rule, changes):
        """The violations that `rule` finds in the valid tree with `changes` applied."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**GOOD_TREE, **changes}.items():
                path = pathlib.Path(root) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return rule.violations(root)

    def assert_rejects(self, rule, file, text):
        found = self.violations(rule, {file: text})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(file), found[0])

    def test_valid_tree_passes(self):
        for rule in (budget_rule, include_rule, file_rule, docs_rule, names_rule, python_import_rule):
            self.assertEqual(self.violations(rule, {}), [])

    def test_include_of_a_higher_layer_is_rejected(self):
        for file, target in [
            ("runtime/base/bad.h", "runtime/launch/engine.h"),
            ("runtime/launch/bad.cc", "cache/files/lock.h"),
            ("runtime/bad.cc", "autotune/search/tuner.h"),
            ("cache/database/bad.h", "runtime/launch/engine.h"),
            ("cache/database/bad.cc", "autotune/search/tuner.h"),
            ("cache/files/bad.cc", "cache/records/trial.h"),
            ("cache/records/bad.cc", "cache/database/store.h"),
            ("cache/artifacts/bad.cc", "cache/records/trial.h"),
            ("autotune/search/bad.cc", "dorajit/dorajit.h"),
            ("autotune/search/bad.cc", "autotune/sources/source.h"),
            ("autotune/service/client/bad.cc", "autotune/service/daemon/answering.h"),
            ("autotune/service/protocol/bad.cc", "autotune/service/client/asking.h"),
            ("autotune/sources/bad.cc", "autotune/engine_factory.h"),
            ("autotune/engine_factory.cc", "apps/cli/terminal/output.h"),
            ("bindings/c/bad.cc", "apps/cli/terminal/output.h"),
            ("apps/cli/terminal/bad.cc", "apps/cli/options/shapes.h"),
            ("apps/cli/terminal/bad.cc", "cache/database/store.h"),
            ("apps/cli/options/bad.cc", "apps/cli/commands/tune.h"),
            ("apps/daemon/bad.cc", "apps/cli/options/shapes.h"),
            ("apps/daemon/bad.cc", "dorajit/dorajit.h"),
            ("kernel_templates/bad.cc", "runtime/base/error.h"),
            ("include/dorajit/bad.h", "runtime/base/error.h"),
        ]:
            with self.subTest(file=file, target=target):
                self.assert_rejects(include_rule, file, f'\n  # include "{target}"\n')
                self.assert_rejects(include_rule, file, f"#include <{target}>\n")

    def test_import_from_a_higher_room_is_rejected(self):
        for room, text in (("operations", "from dorajit.norms import gain"),
                           ("norms", "from dorajit.layers.linear import x"),
                           ("layers", "import dorajit.nn"), ("errors.py", "from dorajit import operations"),
                           ("nn", "def f():\n    from dorajit import testing"), ("elsewhere", "")):
            file = f"bindings/python/dorajit/{room}" + ("" if room.endswith(".py") else "/bad.py")
            with self.subTest(file=file, text=text):
                self.assert_rejects(python_import_rule, file, text + "\n")

    def test_circle_of_imports_is_rejected(self):
        norms = "bindings/python/dorajit/norms"
        found = self.violations(python_import_rule, {
            f"{norms}/a.py": "from dorajit.norms import b, gain\n",
            f"{norms}/b.py": "from dorajit.norms.c import x\n",
            f"{norms}/c.py": "def f():\n    import dorajit.norms.a\n"})
        self.assertEqual(len(found), 1, found)
        for one, other in ("ab", "bc", "ca"):
            self.assertIn(f"dorajit.norms.{one} -> dorajit.norms.{other}", found[0])

    def test_sqlite_outside_of_the_database_is_rejected(self):
        for file in ("autotune/search/bad.cc", "cache/records/bad.cc"):
            self.assert_rejects(include_rule, file, "#include <sqlite3.h>\n")

    def test_source_outside_of_a_room_is_rejected(self):
        for file in ("cache/bad.cc", "autotune/bad.cc", "bindings/bad.h", "apps/bad.h", "cache/new/bad.h"):
            self.assert_rejects(include_rule, file, "")

    def test_system_header_in_a_template_is_rejected(self):
        for file in ("math/bad.h", "cuda/bad.cuh", "streaming_config.h", "new_config.h"):
            self.assert_rejects(include_rule, f"kernel_templates/{file}", "#include <cstdint>\n")

    def test_template_include_relative_to_the_root_is_rejected(self):
        for file in ("cuda/bad.cuh", "cpu/bad.h", "new_config.h"):
            self.assert_rejects(include_rule, f"kernel_templates/{file}",
                                '#include "kernel_templates/streaming_config.h"\n')

    def test_missing_include_is_rejected(self):
        self.assert_rejects(include_rule, "cache/files/bad.cc", '#include "cache/files/missing.h"\n')

    def test_long_file_is_rejected(self):
        self.assertEqual(self.violations(file_rule, {"cache/long.cc": "\n" * 400}), [])
        self.assert_rejects(file_rule, "cache/long.cc", "\n" * 401)

    def test_folder_beyond_its_budget_is_rejected(self):
        self.assertEqual(self.violations(budget_rule, {"runtime/base/long.h": "\n" * 300}), [])
        for name, text in (("runtime", "runtime/launch/long.h"), ("runtime/base", "runtime/base/long.h")):
            found = self.violations(budget_rule, {text: "\n" * 460})
            self.assertTrue(any(one.startswith(f"{name}/: 4") for one in found), found)

    def test_folder_without_a_budget_is_rejected(self):
        self.assert_rejects(budget_rule, "elsewhere/new.py", "")

    def test_expectation_about_the_time_that_passes_is_rejected(self):
        self.assert_rejects(file_rule, "tests/cache/bad_test.cc",
                            "EXPECT_LT(\n    std::chrono::steady_clock::now() - start, seconds(1));\n")

    def test_unfinished_mark_is_rejected(self):
        for mark in ("TO" + "DO", "FIX" + "ME"):
            self.assert_rejects(file_rule, "cache/bad.cc", f"\n// {mark}: later\n")

    def test_operation_name_outside_of_kernel_templates_is_rejected(self):
        table = {"kernel_templates/CMakeLists.txt": 'set(DORAJIT_OPERATIONS compose add CACHE INTERNAL "")'}
        for text in ('operation("compose")', '// "compose/f32"', "// of DoRA", "TensorView lora;"):
            for path in ("runtime/bad.cc", "bindings/python/bad.h", "bindings/python/dorajit/bad.py"):
                with self.subTest(text=text, path=path):
                    found = self.violations(names_rule, {**table, path: text})
                    self.assertEqual(len(found), 1, found)
        right = {"runtime/good.cc": 'compose_kernel(); say("dorajit"); // exploration',
                 "bindings/c/operations.cc": 'operation("compose")',
                 "bindings/python/dorajit/good.py": "PEFT_DORA_FUSED",
                 "bindings/python/dorajit/nn/layer.py": "lora"}
        self.assertEqual(self.violations(names_rule, {**table, **right}), [])

    def test_link_without_a_target_is_rejected(self):
        self.assert_rejects(docs_rule, "docs/a.md", "[b](b.md#there)")
        good = {"docs/a.md": "[b](b.md#there) [c](https://c.org) [d](#d)", "docs/b.md": ""}
        self.assertEqual(self.violations(docs_rule, good), [])

    def test_unlisted_environment_variable_is_rejected(self):
        source = {"runtime/base/settings.cc": 'read("DORAJIT_TUNE");'}
        self.assertEqual(len(self.violations(docs_rule, source)), 1)
        page = {"docs/environment.md": "| `DORAJIT_TUNE` | first_use, off |"}
        self.assertEqual(self.violations(docs_rule, {**source, **page}), [])
        doctor = {"apps/cli/commands/doctor_command.cc": "// knows nothing"}
        self.assertEqual(len(self.violations(docs_rule, {**source, **page, **doctor})), 1)


if __name__ == "__main__":
    unittest.main()
