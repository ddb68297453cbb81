"""Runs test bodies in several processes, one per rank, with a time limit.

The ranks are forked from one process (multiprocessing's forkserver) that has imported slow modules
and started no threads: importing torch._dynamo alone, as DistributedDataParallel does, takes
two busy ranks longer than the timeout of a rendezvous.
"""

import datetime
import multiprocessing
import os
import sys
import time
import traceback

import pytest
import torch

SECONDS = 240
_PRELOADED = ["torch._dynamo", "torch.distributed.tensor", "torch.distributed.tensor.parallel",
              "torch.distributed.fsdp", "torch.utils.checkpoint", "torch.optim", "pytest", "dorajit"]
_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_server = None


def devices(ranks):
    """The devices for a test with this number of ranks: the CPU, and CUDA if there are enough GPUs."""
    enough = torch.cuda.is_available() and torch.cuda.device_count() >= ranks
    return ["cpu"] + (["cuda"] if enough else [])


def on(*sizes):
    """Parametrises a test by `ranks` and `device`."""
    cases = [(size, device) for size in sizes for device in devices(size)]
    return pytest.mark.parametrize("ranks, device", cases, ids=[f"{n}-{d}" for n, d in cases])


def fully_shard(module, device):
    """PyTorch's fully_shard over all ranks. Its default mesh would use GPUs wherever there are any."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    return fully_shard(module, mesh=init_device_mesh(device, (torch.distributed.get_world_size(),)))


def _context():
    global _server
    if _server is None:
        _server = multiprocessing.get_context("forkserver")
        # Importing DeepSpeed initialises CUDA if there are GPUs, which must not happen before a fork.
        more = ["peft", "transformers.pytorch_utils"] + ["deepspeed"] * (not torch.cuda.is_available())
        _server.set_forkserver_preload(_PRELOADED + _optional(*more))
    return _server


def _optional(*names):
    import importlib.util
    return [name for name in names if importlib.util.find_spec(name.split(".")[0])]


def run(body, ranks, device, folder, *arguments, seconds=SECONDS, **environment):
    """Runs body(rank, device, *arguments) in each rank and fails with the errors of all ranks.

    Args:
        body: a function of a test module; the process group of all ranks is initialised.
        folder: an empty folder, for the rendezvous.
        environment: environment variables of the ranks.

    Returns:
        The results of the body, by rank.
    """
    context = _context()
    pipes, processes = [], []
    for rank in range(ranks):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_rank, daemon=True, args=(
            body, rank, ranks, device, str(folder), arguments, there, seconds, environment))
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    deadline = time.monotonic() + seconds + 5
    try:
        found = [_answer(pipe, deadline) for pipe in pipes]
    finally:
        for process in processes:
            process.join(2)
            if process.is_alive():
                process.kill()
                process.join()
    wrong = [f"rank {rank}: {text}" for rank, (right, text) in enumerate(found) if not right]
    assert not wrong, "\n".join(wrong)
    return [value for _, value in found]


def _answer(pipe, deadline):
    try:
        if pipe.poll(max(deadline - time.monotonic(), 0)):
            return pipe.recv()
        return False, "did not end in time"
    except EOFError:
        return False, "died without an error message"


def _rank(body, rank, ranks, device, folder, arguments, pipe, seconds, environment):
    try:
        os.environ.update(environment, LOCAL_RANK=str(rank), RANK=str(rank), WORLD_SIZE=str(ranks))
        torch.set_num_threads(1)
        torch.manual_seed(7)
        if device == "cuda":
            torch.cuda.set_device(rank)
            torch.backends.cudnn.allow_tf32 = False
        torch.distributed.init_process_group(
            _BACKENDS[device], init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks,
            timeout=datetime.timedelta(seconds=seconds))
        pipe.send((True, body(rank, device, *arguments)))
        torch.distributed.barrier()  # no rank closes its sockets while another still uses them
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    pipe.close()
    sys.stdout.flush()
    os._exit(0)  # a process group that a failed rank has left cannot be destroyed normally
