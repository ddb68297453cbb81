"""DORAJIT_PATCH_PEFT: an interpreter that starts with it patches PEFT after its import."""

import pkgutil
import re

import pytest
from environments import SITE, run

# How PEFT was patched: arguments of each call of the stand-in of patch_peft.
SHOW = "import sys; print(getattr(sys.modules.get('dorajit'), 'calls', None))"


@pytest.fixture
def stand_ins(tmp_path):
    """A folder with packages that stand in for PEFT and dorajit and import no PyTorch."""
    for name, text in (("peft", "value = 7\n"),
                       ("dorajit", "calls = []\ndef patch_peft(**arguments):\n    import peft\n"
                                   "    assert peft.value == 7\n    calls.append(arguments)\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    return tmp_path


def said(interpreter, program, folder=None, value="1"):
    return run(interpreter, "-c", program, folder=folder, value=value).stdout.strip()


@pytest.mark.parametrize("value", [None, "", "0", "false"])
def test_start_without_the_variable_imports_nothing_of_dorajit(interpreter, stand_ins, value):
    program = "import sys, peft; print([one for one in sys.modules if one.startswith('dorajit')], len(sys.meta_path))"
    loaded = "[]" if not value else "['dorajit_autopatch']"
    assert said(interpreter, program, stand_ins, value) == f"{loaded} {said(interpreter, program, stand_ins, None)[-1]}"


def test_start_with_the_variable_imports_neither_pytorch_nor_the_package(interpreter):
    assert said(interpreter, "import sys; print({'torch', 'dorajit', 'peft', 'logging'} & {*sys.modules})") == "set()"


@pytest.mark.parametrize("value, arguments", [
    ("1", {}), ("TRUE", {}), ("dropout=low_rank", {"dropout": "low_rank"}),
    (" 1, Dropout = low_rank ,low_rank_dtype=base", {"dropout": "low_rank", "low_rank_dtype": "base"})])
def test_import_of_peft_patches_once_with_the_arguments(interpreter, stand_ins, value, arguments):
    assert said(interpreter, f"import peft.__init__, importlib; importlib.reload(peft); {SHOW}", stand_ins,
                value) == str([arguments])


def test_patched_peft_keeps_its_loader_and_no_finder_is_left(interpreter, stand_ins):
    program = ("import sys, importlib.util as u; before = len(sys.meta_path); u.find_spec('peft'); found = u.find_spec('peft')\n"
               "assert found.loader.get_filename('peft') == found.origin; import peft, inspect\n"
               "kinds = {type(peft.__loader__).__name__, type(peft.__spec__.loader).__name__}\n"
               "print(kinds, before - len(sys.meta_path), inspect.getsource(peft).strip())")
    assert said(interpreter, program, stand_ins) == "{'SourceFileLoader'} 1 value = 7"


@pytest.mark.parametrize("place", [0, 1])
def test_finder_of_another_package_that_asks_all_others_finds_peft(interpreter, stand_ins, place):
    program = f"""
import copy, importlib.util, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        found = (one.find_spec(name, path, target) for one in sys.meta_path if one is not self and name == "peft")
        return next((spec for spec in found if spec is not None), None)
sys.meta_path.insert({place}, Finder())
copy.copy(importlib.util.find_spec("peft").loader)
import peft; {SHOW}"""
    assert said(interpreter, program, stand_ins) == "[{}]"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_child_processes_patch(interpreter, stand_ins, method):
    (stand_ins / "main.py").write_text(f"""
import multiprocessing
def work(queue):
    import peft, dorajit
    queue.put(dorajit.calls)
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    print(queue.get(timeout=60))
    child.join()
""")
    assert run(interpreter, stand_ins / "main.py", folder=stand_ins).stdout.strip() == "[{}]"


@pytest.mark.parametrize("value, package, reason", [
    ("dropuot=low_rank", None, "'dropuot=low_rank' is not a valid item; give 1, or dropout or low_rank_dtype with a value"),
    ("1", "raise OSError('no library')", "OSError: no library"),
    ("1", "def patch_peft(): raise ImportError('no torch')", "ImportError: no torch"),
    ("1", "import warnings; warnings.warn('partly')", "UserWarning: partly")])
def test_failure_to_patch_is_logged_and_ends_nothing(interpreter, stand_ins, value, package, reason):
    if package is not None:
        (stand_ins / "dorajit" / "__init__.py").write_text(package)
    done = run(interpreter, "-W", "error", "-c", "import peft; print(peft.value)", folder=stand_ins, value=value)
    assert done.stdout == "7\n"
    assert done.stderr.startswith(f"PEFT is not patched, although DORAJIT_PATCH_PEFT is '{value}': ")
    assert reason in done.stderr and done.stderr.count("\n") == 1


def test_failed_import_of_peft_is_its_own_error_and_the_next_one_patches(interpreter, stand_ins):
    (stand_ins / "peft" / "__init__.py").write_text(
        "import sys\nif not hasattr(sys, 'again'):\n    sys.again = 1\n    raise ImportError('later')\nvalue = 7\n")
    program = f"try:\n    import peft\nexcept ImportError as error:\n    print(error)\nimport peft\n{SHOW}"
    assert said(interpreter, program, stand_ins) == "later\n[{}]"


def test_missing_peft_is_reported_by_python(interpreter, stand_ins):
    (stand_ins / "peft" / "__init__.py").unlink()
    (stand_ins / "peft").rmdir()
    program = "import sys; sys.path[:] = [one for one in sys.path if '-packages' not in one]\ntry:\n    import peft\n" \
              "except ModuleNotFoundError as error:\n    print(error)"
    assert said(interpreter, program, stand_ins) == "No module named 'peft'"


def test_files_for_older_and_newer_pythons_call_the_same_function():
    """From Python 3.15 on `site` calls the entry points of .start files."""
    import dorajit_autopatch
    assert pkgutil.resolve_name((SITE / "dorajit.start").read_text().strip()) is dorajit_autopatch.install
    pth = (SITE / "dorajit.pth").read_text()
    assert pth.startswith("import ") and pth.count("\n") == 1
    assert re.search(r'get\("(\w+)"\)', pth)[1] == dorajit_autopatch.VARIABLE
    assert '__import__("dorajit_autopatch").install()' in pth


TRAIN = """
import peft, torch
from torch import nn
from dorajit import testing
from dorajit.peft.patch import _patches

def count(items):
    return len(_patches)

if __name__ == "__main__":
    model = peft.get_peft_model(nn.Sequential(nn.Linear(32, 16)), peft.LoraConfig(use_dora=True, target_modules=["0"]))
    model(torch.ones(4, 32)).sum().backward()
    counts = testing.launch_counts()
    workers = torch.utils.data.DataLoader(range(2), num_workers=1, batch_size=2, multiprocessing_context="spawn",
                                          collate_fn=count)
    print("patches:", len(_patches), "of workers:", *workers, "composed:", counts["compose_residual"] + counts["compose_low_rank"])
"""


@pytest.mark.parametrize("words", [
    [], ["-m", "torch.distributed.run", "--nproc-per-node", "2"],
    ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1"],
    ["-m", "deepspeed.launcher.runner", "--num_gpus", "1"]], ids=["python", "torchrun", "accelerate", "deepspeed"])
def test_launched_training_runs_layers_as_one_node(interpreter, tmp_path, words, monkeypatch):
    pytest.importorskip("peft")
    for package in ("accelerate", "deepspeed"):
        if words and words[1].startswith(package):
            pytest.importorskip(package)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    (tmp_path / "train.py").write_text(TRAIN)
    done = run(interpreter, *words, tmp_path / "train.py")
    assert done.stdout.count("patches: 1 of workers: 1 composed: 1") == (2 if "--nproc-per-node" in words else 1), (
        done.stdout + done.stderr)
