"""Several GPUs in one process, from several threads and streams."""

import threading

import pytest
import torch

import dorajit
from reference import SCALE, compose, operands

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


def test_threads_run_on_the_devices_of_their_tensors(launches):
    failures = []

    def work(index):
        device = torch.device("cuda", index)
        current = torch.cuda.current_stream(device)
        try:
            for shape in ((1, 512), (300, 4096), (17, 1030)):
                lora, base, gain = operands(shape, device, torch.bfloat16, torch.float32)
                for stream in (current, torch.cuda.Stream(device)):
                    lora, gain = (one.detach().requires_grad_() for one in (lora, gain))
                    stream.wait_stream(current)
                    with torch.cuda.stream(stream):
                        out = dorajit.fused_dora_compose_autograd(lora, base, gain, SCALE)
                        out.sum().backward()
                    stream.synchronize()
                    assert torch.equal(out, compose(lora, base, gain, SCALE))
                    assert {out.device, lora.grad.device, gain.grad.device} == {device}
        except Exception as error:  # pytest reports only errors of its own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert launches() == {"compose_inner": 36, "backward": 36}


def test_operands_on_two_devices_raise():
    lora, base, gain = operands((4, 8), "cuda:0")
    with pytest.raises(ValueError, match="argument `base` is on cuda:1 but `lora` is on cuda:0"):
        dorajit.fused_dora_compose(lora, base.to("cuda:1"), gain, SCALE)
