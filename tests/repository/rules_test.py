"""Each rule finds a planted violation, and accepts what is right."""

import pathlib
import tempfile
import unittest

import docs_rule
import file_rule
import include_rule
import names_rule
import python_import_rule

GOOD_TREE = {
    "kernel_templates/streaming_config.h": "#pragma once\n",
    "kernel_templates/math/compose.h": '#include "streaming_config.h"\n',
    "kernel_templates/cpu/elementwise.h": '#include <emmintrin.h>\n#include "math/compose.h"\n',
    "kernel_templates/registry.h": '#include <string>\n#include "kernel_templates/streaming_config.h"\n',
    "runtime/base/error.h": "#include <string>\n",
    "runtime/launch/engine.h": '#include "runtime/base/error.h"\n#include "math/compose.h"\n',
    "cache/tuning_store.h": '#include <sqlite3.h>\n#include "runtime/base/error.h"\n',
    "autotune/tuner.h": '#include "cache/tuning_store.h"\n#include "runtime/launch/engine.h"\n',
    "bindings/c/engine.cc": '#include "autotune/tuner.h"\n#include "dorajit/dorajit.h"\n',
    "include/dorajit/dorajit.h": "#include <dlpack/dlpack.h>\n",
    "bindings/python/dorajit/norms/gain.py": "from dorajit import errors\nfrom dorajit.operations import table\n",
}


class RulesTest(unittest.TestCase):
    def violations(self, rule, changes):
        """What `rule` says of the good tree with `changes` laid over it."""
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

    def test_a_good_tree_passes(self):
        for rule in (include_rule, file_rule, docs_rule, names_rule, python_import_rule):
            self.assertEqual(self.violations(rule, {}), [])

    def test_includes_point_down_the_layers(self):
        for file, target in [
            ("runtime/base/bad.h", "runtime/launch/engine.h"),
            ("runtime/launch/bad.cc", "cache/tuning_store.h"),
            ("runtime/bad.cc", "autotune/tuner.h"),
            ("cache/bad.h", "runtime/launch/engine.h"),
            ("cache/bad.cc", "autotune/tuner.h"),
            ("autotune/bad.cc", "dorajit/dorajit.h"),
            ("kernel_templates/bad.cc", "runtime/base/error.h"),
            ("include/dorajit/bad.h", "runtime/base/error.h"),
        ]:
            with self.subTest(file=file, target=target):
                self.assert_rejects(include_rule, file, f'\n  # include "{target}"\n')
                self.assert_rejects(include_rule, file, f"#include <{target}>\n")

    def test_modules_of_the_package_import_from_below(self):
        for room, text in (("operations", "from dorajit.norms import gain"),
                           ("norms", "from dorajit.layers.linear import x"),
                           ("layers", "import dorajit.nn"), ("errors.py", "from dorajit import operations"),
                           ("nn", "def f():\n    from dorajit import testing"), ("elsewhere", "")):
            file = f"bindings/python/dorajit/{room}" + ("" if room.endswith(".py") else "/bad.py")
            with self.subTest(file=file, text=text):
                self.assert_rejects(python_import_rule, file, text + "\n")

    def test_only_the_cache_uses_sqlite(self):
        self.assert_rejects(include_rule, "autotune/bad.cc", "#include <sqlite3.h>\n")

    def test_templates_include_no_system_header(self):
        for file in ("math/bad.h", "cuda/bad.cuh", "streaming_config.h", "element_type.h", "arguments.h"):
            self.assert_rejects(include_rule, f"kernel_templates/{file}", "#include <cstdint>\n")

    def test_templates_name_each_other_as_the_jit_compilers_find_them(self):
        self.assert_rejects(include_rule, "kernel_templates/cuda/bad.cuh",
                            '#include "kernel_templates/streaming_config.h"\n')

    def test_an_include_must_exist(self):
        self.assert_rejects(include_rule, "cache/bad.cc", '#include "cache/missing.h"\n')

    def test_files_stay_short(self):
        self.assertEqual(self.violations(file_rule, {"cache/long.cc": "\n" * 400}), [])
        self.assert_rejects(file_rule, "cache/long.cc", "\n" * 401)

    def test_files_are_finished(self):
        for mark in ("TO" + "DO", "FIX" + "ME"):
            self.assert_rejects(file_rule, "cache/bad.cc", f"\n// {mark}: later\n")

    def test_no_layer_below_mentions_an_operation(self):
        table = {"kernel_templates/CMakeLists.txt": 'set(DORAJIT_OPERATIONS compose add CACHE INTERNAL "")'}
        for text in ('operation("compose")', '// "compose/f32"', "// of DoRA", "TensorView lora;"):
            for path in ("runtime/bad.cc", "bindings/python/bad.h", "bindings/python/dorajit/bad.py"):
                with self.subTest(text=text, path=path):
                    found = self.violations(names_rule, {**table, path: text})
                    self.assertEqual(len(found), 1, found)
        right = {"runtime/good.cc": 'compose_engine(); say("dorajit"); // exploration',
                 "bindings/c/operations.cc": 'operation("compose")',
                 "bindings/python/dorajit/good.py": "PEFT_DORA_FUSED",
                 "bindings/python/dorajit/nn/layer.py": "lora"}
        self.assertEqual(self.violations(names_rule, {**table, **right}), [])

    def test_links_lead_somewhere(self):
        self.assert_rejects(docs_rule, "docs/a.md", "[b](b.md#there)")
        good = {"docs/a.md": "[b](b.md#there) [c](https://c.org) [d](#d)", "docs/b.md": ""}
        self.assertEqual(self.violations(docs_rule, good), [])

    def test_environment_variables_are_listed(self):
        source = {"runtime/base/settings.cc": 'read("DORAJIT_TUNE");'}
        self.assertEqual(len(self.violations(docs_rule, source)), 1)
        page = {"docs/environment.md": "| `DORAJIT_TUNE` | first_use, off |"}
        self.assertEqual(self.violations(docs_rule, {**source, **page}), [])


if __name__ == "__main__":
    unittest.main()
