"""Contexts, warmup, the tuning policy and the cache."""

import json
import os
import threading

import dorajit
import processes
import pytest
import reference
import torch
from dorajit import control, testing
from reference import SCALE, operands


def test_disabled_and_force_native_contexts_nest(launches):
    tensors = operands((4, 8), "cpu")
    with dorajit.disabled():
        assert torch.equal(dorajit.fused_dora_compose(*tensors, SCALE, inplace=False),
                           reference.compose(*tensors, SCALE))
        assert launches() == {}
        with dorajit.force_native():
            dorajit.fused_dora_compose(*tensors, SCALE, inplace=False)
        assert launches() == {"compose": 1}
        dorajit.fused_norm_assembly(*(tensors[2],) * 3, SCALE)
        assert launches() == {}
    dorajit.fused_dora_compose(*tensors, SCALE)
    assert launches() == {"compose": 1}


def test_overlapping_contexts_of_threads_apply_the_last_entered(launches):
    tensors = operands((4, 8), "cpu")
    def served():
        dorajit.fused_dora_compose(*tensors, SCALE)
        return launches() == {"compose": 1}
    first, second = dorajit.disabled(), dorajit.disabled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not served()
    with dorajit.force_native():
        assert served()
    assert not served()
    second.__exit__(None, None, None)
    assert served()


def test_forked_process_keeps_contexts_of_its_thread(launches):
    tensors = operands((4, 8), "cpu")
    inside, go = threading.Event(), threading.Event()
    def other():
        with dorajit.disabled():
            inside.set()
            go.wait()
    threads = [threading.Thread(target=other)]
    threads[0].start()
    inside.wait()
    def is_native_in_a_fork():
        child = os.fork()
        if child == 0:
            dorajit.fused_dora_compose(*tensors, SCALE)
            os._exit(0 if launches() == {"compose": 1} else 1)
        return os.waitpid(child, 0)[1] == 0
    try:
        assert is_native_in_a_fork()
        with dorajit.disabled():
            assert not is_native_in_a_fork()
    finally:
        go.set()
        threads[0].join()


def test_forking_while_threads_enter_contexts_does_not_deadlock():
    printed = processes.run("""
import os, signal, threading, time
def hammer():
    while True:
        with dorajit.disabled(): pass
threading.Thread(target=hammer, daemon=True).start()
for _ in range(30):
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        with dorajit.force_native(): assert right()
        os._exit(0)
    print(os.waitpid(child, 0)[1], end=" ", flush=True)
os._exit(0)
""")
    assert printed.split() == ["0"] * 30


def test_environment_changed_inside_context_applies_after_it(switch, launches):
    with dorajit.disabled():
        switch("PEFT_DORA_FUSED", "1")
        assert not control.state.enabled
    assert control.state.enabled
    with dorajit.force_native():
        switch("PEFT_DORA_FUSED", "0")
        assert control.state.enabled
    assert not control.state.enabled


def test_switches_apply_to_backward_on_other_threads(launches):
    tensors = operands((4, 8), "cpu", grad=True)
    out = dorajit.fused_dora_compose_autograd(*tensors, SCALE).sum()
    launches()
    with dorajit.disabled():
        worker = threading.Thread(target=out.backward)
        worker.start()
        worker.join()
    assert launches() == {} and tensors[2].grad is not None


def test_tuning_context_sets_the_policy(tmp_path):
    program = """
with dorajit.tuning("off"):
    right()
print(testing.statistics()["tuned_problems"])
with dorajit.tuning("first_use"):
    assert right()
print(testing.statistics()["tuned_problems"], testing.statistics()["launches"])
first_use, off = testing.statistics()["plans"]
assert off["problem"] == first_use["problem"] and off["problem"].startswith("compose/")
assert off["device"] == "cpu" and off["fingerprint"].startswith("cpu/") and off["config"]
print(off["source"], first_use["source"], off["renewals"], first_use["renewals"])
"""
    printed = processes.run(program, DORAJIT_CACHE_DIR=str(tmp_path), DORAJIT_TUNE="off",
                            DORAJIT_CXX="g++", DORAJIT_TUNE_SECONDS="0.2")
    assert printed == "0\n1 2\ndefault tuned 0 0"
    for wrong in ("always", []):
        with pytest.raises(ValueError, match="`policy` is"):
            dorajit.tuning(wrong)


def test_cache_reports_path_database_and_winners(tmp_path):
    program = """
import json
assert right()
dorajit.cache.export_to("{0}/all.jsonl")
stats = dorajit.cache.stats()
assert stats["trials"] > 0 and stats["artifacts"] > 0 and stats["artifact_bytes"] > 1000, stats
assert len(dorajit.cache.winners()["winners"]) == stats["winners"]
print(json.dumps([dorajit.cache.path, stats["winners"],
                  dorajit.cache.import_from("{0}/all.jsonl")["command"]]))
""".format(tmp_path)
    folder = str(tmp_path / "cache")
    printed = json.loads(processes.run(program, DORAJIT_CACHE_DIR=folder, DORAJIT_CXX="g++",
                                       DORAJIT_TUNE="first_use", DORAJIT_TUNE_SECONDS="0.2"))
    assert printed == [folder, 1, "import"]
    assert (tmp_path / "all.jsonl").read_text()


def test_cache_file_names_that_begin_with_dashes_are_not_options(tmp_path):
    program = """
import os
os.chdir("{0}")
assert right()
dorajit.cache.export_to("--help")
print(dorajit.cache.import_from("--help")["command"], os.listdir())
""".format(tmp_path)
    folder = tmp_path.with_name("cache")
    assert processes.run(program, DORAJIT_CACHE_DIR=str(folder)) == "import ['--help']"


def test_cache_folder_with_non_ascii_name_works_in_c_locale(tmp_path):
    program = """
import os
assert right() and dorajit.cache.stats()["winners"] == 0
print(ascii(os.fsencode(dorajit.cache.path)), os.path.isdir(dorajit.cache.path))
"""
    folder = str(tmp_path / "c\u00f6")
    printed = processes.run(program, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", DORAJIT_CACHE_DIR=folder)
    assert printed == f"{ascii(os.fsencode(folder))} True"


def test_invalid_variable_raises_error_with_its_name():
    program = """
try:
    right()
except ValueError as error:
    print("DORAJIT_TUNE" in str(error), isinstance(error, dorajit.Error))
"""
    assert processes.run(program, DORAJIT_TUNE="sometimes") == "True True"


def test_warmup_compiles_kernels_of_later_calls(device):
    dtype = torch.float64
    tensors = operands((4, 8), device, dtype)
    dorajit.warmup("compose", *tensors)
    dorajit.warmup("compose", *tensors, inplace=True)
    dorajit.warmup("compose_inner", *tensors)
    dorajit.warmup("backward", *tensors)
    dorajit.warmup("backward", tensors[0], None, tensors[2], wanted=(True, True, False))
    dorajit.warmup("backward", tensors[0].mT.expand(2, 8, 4).mT, torch.empty(2, 4, 8, device=device,
                                                                             dtype=dtype), tensors[2])
    dorajit.warmup("norm_assembly", *(tensors[2],) * 3)
    dorajit.warmup("compose_residual", *tensors)
    dorajit.warmup("compose_residual", *tensors, tensors[2])
    dorajit.warmup("residual_backward", *tensors)
    before = testing.statistics()
    dorajit.fused_dora_compose(*tensors, SCALE)
    leaf = tensors[2].clone().requires_grad_()
    for bias in (None, tensors[2]):
        dorajit.fused_dora_compose_residual(*tensors, SCALE, bias)
        out = dorajit.fused_dora_compose_residual(*tensors[:2], leaf, SCALE, bias)
    lora, result = (one.clone().requires_grad_() for one in tensors[:2])
    out = dorajit.fused_dora_compose_residual(lora, result, leaf, SCALE)
    torch.autograd.grad(out, (lora, result, leaf), torch.ones_like(out))
    after = testing.statistics()
    assert after["compilations"] == before["compilations"]
    assert after["launches"] == before["launches"] + 7
    with pytest.raises(ValueError, match="`operation` is 'mul'"):
        dorajit.warmup("mul", *tensors)
    with pytest.raises(TypeError, match="compose has 3 tensors, not 2"):
        dorajit.warmup("compose", *tensors[:2])
    with pytest.raises(TypeError, match="has 3 tensors, not 4"):
        dorajit.warmup("residual_backward", *tensors, tensors[2])
    with pytest.raises(ValueError, match="`base` has shape"):
        dorajit.warmup("compose", tensors[0], tensors[1][:2], tensors[2])
    with pytest.raises(dorajit.UnsupportedError, match="runs in PyTorch: float64"):
        dorajit.warmup("compose", tensors[0], tensors[1].float(), tensors[2])
    with pytest.raises(dorajit.UnsupportedError, match="runs in PyTorch: `bias` has elements"):
        dorajit.warmup("compose_residual", *tensors, tensors[2].to(torch.float8_e4m3fn))


def test_explain_dispatch_names_the_switch_of_the_backward_pass(device, launches, switch):
    switch("PEFT_DORA_FUSED_BACKWARD", "0")
    lora, base, gain = operands((4, 8), device, grad=True)
    for operation in ("compose", "compose_inner", "compose_residual"):
        answer = dorajit.explain_dispatch(lora, base, gain, operation)
        assert answer.path == "torch" and "FUSED_BACKWARD" in answer.reason
    dorajit.fused_dora_compose_autograd(lora, base, gain, SCALE)
    assert launches() == {}
    with torch.no_grad():
        assert dorajit.explain_dispatch(lora, base, gain).path == "native"
    with dorajit.force_native():
        dorajit.fused_dora_compose_autograd(lora, base, gain, SCALE)
    assert launches() == {"compose_inner": 1}


def test_warmup_of_backward_accepts_types_of_gradients(device):
    types = torch.float16, torch.float32
    lora, result, gain = (one.to(dtype).requires_grad_() for one, dtype in zip(
        operands((4, 8), device), (*types, torch.bfloat16)))  # types that no other test uses
    dorajit.warmup("compose_residual", lora, result, gain)
    dorajit.warmup("residual_backward", result, result, gain, types=types)
    before = testing.statistics()
    out = dorajit.fused_dora_compose_residual(lora, result, gain, SCALE)
    torch.autograd.grad(out, (lora, result, gain), torch.ones_like(out))
    after = testing.statistics()
    assert after["builtin_kernels"] + after["compilations"] == (before["builtin_kernels"] + before["compilations"])
    with pytest.raises(TypeError, match="`inner` is None"):
        dorajit.warmup("residual_backward", result, None, gain)
