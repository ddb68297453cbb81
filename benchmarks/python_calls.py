"""CPU time of one Python call, compared with PyTorch's eager expressions and, on a GPU, Triton's kernels.

    PYTHONPATH=build/release/bindings/python python3 python_calls.py [--device cpu|cuda] [--json FILE]

Tensors are tiny, so that the overhead of a call is measured: on a GPU calls are only enqueued,
and the queue is emptied between batches; on a CPU the time includes the kernel's few hundred nanoseconds.
Contenders are interleaved in random order; times are medians of batches. The first call of each,
which compiles, is not counted. Ratios are a contender's time over dorajit's. Both wall time and CPU time of
all threads are reported: autograd runs a GPU's backward pass in a separate thread, and waiting for it to
start is part of the wall time only. The least CPU time ("least cpu") is least affected by other programs on
the machine. Only public functions of the package are used, so that an older version can be measured with
another PYTHONPATH: alternate the runs, and name them with --package.
"""

import argparse
import os
import random
import statistics
import time

import torch

import dorajit
import report

SCALE = 0.5
PEERS = {}


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def operands(arguments):
    shape = (arguments.rows, arguments.cols)
    dtype = getattr(torch, arguments.type)
    lora, base = (torch.randn(shape, device=arguments.device).to(dtype) for _ in range(2))
    gain = (1 + torch.randn(shape[-1], device=arguments.device) / 16).to(dtype)
    return lora, base, gain


def expression(lora, base, gain):
    return (gain - 1) * base + gain * (SCALE * lora)


def compose(lora, base, gain):
    out = torch.empty_like(lora)
    contenders = {
        "dorajit": lambda: dorajit.fused_dora_compose(lora, base, gain, SCALE, False),
        "dorajit_inplace": lambda: dorajit.fused_dora_compose(out, base, gain, SCALE),
        "eager": lambda: expression(lora, base, gain)}
    if PEERS:
        contenders["triton"] = lambda: PEERS["compose"].compose(lora, base, gain, SCALE,
                                                                torch.empty_like(lora))
    return contenders


def forward_and_inner(lora, base, gain):
    contenders = {
        "dorajit": lambda: dorajit.fused_dora_forward_and_inner(lora, base, gain, SCALE),
        "eager": lambda: (expression(lora, base, gain), SCALE * lora + base)}
    if PEERS:
        contenders["triton"] = lambda: PEERS["compose"].compose_inner(
            lora, base, gain, SCALE, torch.empty_like(lora), torch.empty_like(lora))
    return contenders


def backward(d_out, inner, gain):
    contenders = {
        "dorajit": lambda: dorajit.compose_backward(d_out, inner, gain, SCALE),
        "eager": lambda: ((gain * SCALE) * d_out, (gain - 1) * d_out, (inner * d_out).sum(0))}
    if PEERS:
        peer = PEERS["backward_two_stage"]
        partials = torch.empty(peer.workspace_shape(*d_out.shape), device=d_out.device)
        contenders["triton"] = lambda: peer.backward(
            d_out, inner, gain, SCALE, torch.empty_like(d_out), torch.empty_like(d_out),
            torch.empty_like(gain), partials)
    return contenders


def residual(lora, result, gain):
    contenders = {
        "dorajit": lambda: dorajit.fused_dora_compose_residual(lora, result, gain, SCALE),
        "compose and add": lambda: result + dorajit.fused_dora_compose(lora, result, gain, SCALE,
                                                                       False),
        "eager": lambda: result + expression(lora, result, gain)}
    if PEERS:
        def triton():
            delta = torch.empty_like(lora)
            PEERS["compose"].compose(lora, result, gain, SCALE, delta)
            return result + delta
        contenders["triton"] = triton
    return contenders


def norm_assembly(_, __, gain):
    terms = [gain.float().abs() for _ in range(3)]
    contenders = {
        "dorajit": lambda: dorajit.fused_norm_assembly(*terms, SCALE),
        "eager": lambda: ((terms[0] + (2 * SCALE) * terms[1]) + (SCALE * SCALE) * terms[2])
        .clamp_min(0).sqrt()}
    if PEERS:
        contenders["triton"] = lambda: PEERS["norm_assembly"].norm_assembly(
            *terms, SCALE, torch.empty_like(terms[0]))
    return contenders


class NoWork(torch.autograd.Function):
    """Allocates the results and computes nothing: PyTorch's own time for such a node."""

    @staticmethod
    def forward(ctx, lora, base, gain, scale):
        ctx.save_for_backward(gain, torch.empty_like(lora))
        return torch.empty_like(lora)

    @staticmethod
    def backward(ctx, d_out):
        gain, inner = ctx.saved_tensors
        results = (torch.empty_like(d_out), torch.empty_like(inner), torch.empty_like(gain))
        return *(one if wanted else None
                 for one, wanted in zip(results, ctx.needs_input_grad)), None


def training(lora, base, gain):
    """Forward and backward through autograd."""
    tensors = [tensor.clone().requires_grad_() for tensor in (lora, base, gain)]
    d_out = torch.randn_like(lora)
    fused = dorajit.fused_dora_compose_autograd
    def native():
        return torch.autograd.grad(fused(*tensors, SCALE), tensors, d_out)
    return {"dorajit": native,
            "eager": lambda: torch.autograd.grad(expression(*tensors), tensors, d_out),
            "no work": lambda: torch.autograd.grad(NoWork.apply(*tensors, SCALE), tensors, d_out)}


def training_no_gain(lora, base, gain):
    """As training, with a frozen magnitude. "one sum" is the least time of PyTorch's own nodes
    with one kernel forward and one backward."""
    tensors = [tensor.clone().requires_grad_() for tensor in (lora, base)]
    d_out = torch.randn_like(lora)
    fused = dorajit.fused_dora_compose_autograd
    def native():
        return torch.autograd.grad(fused(*tensors, gain, SCALE), tensors, d_out)
    return {"dorajit": native,
            "eager": lambda: torch.autograd.grad(expression(*tensors, gain), tensors, d_out),
            "no work": lambda: torch.autograd.grad(NoWork.apply(*tensors, gain, SCALE), tensors,
                                                   d_out),
            "one sum": lambda: torch.autograd.grad(torch.add(*tensors, alpha=SCALE), tensors,
                                                   d_out)}


def training_residual(lora, result, gain):
    """As training, for the base result plus the composition."""
    tensors = [tensor.clone().requires_grad_() for tensor in (lora, result, gain)]
    d_out = torch.randn_like(lora)
    fused, compose_alone = (dorajit.fused_dora_compose_residual, dorajit.fused_dora_compose_autograd)
    def native():
        return torch.autograd.grad(fused(*tensors, SCALE), tensors, d_out)
    return {"dorajit": native,
            "compose and add": lambda: torch.autograd.grad(
                tensors[1] + compose_alone(*tensors, SCALE), tensors, d_out),
            "eager": lambda: torch.autograd.grad(tensors[1] + expression(*tensors), tensors, d_out)}


CASES = {"compose": compose, "forward_and_inner": forward_and_inner, "backward": backward,
         "norm_assembly": norm_assembly, "residual": residual, "forward+backward": training,
         "forward+backward, frozen": training_no_gain,
         "forward+backward, residual": training_residual}
WITH_GRAD = {name for name in CASES if name.startswith("forward+backward")}


def measure(name, contenders, arguments):
    """Contender -> microseconds per call: median wall time, median CPU time, least CPU time."""
    passed, worked = ({who: [] for who in contenders} for _ in range(2))
    # Once around a whole batch: entering it takes 2 us, a third of the shortest call.
    with torch.set_grad_enabled(name in WITH_GRAD):
        for run in contenders.values():
            for _ in range(arguments.calls):
                run()
        for _ in range(arguments.batches):
            for who in random.sample(list(contenders), len(contenders)):
                run = contenders[who]
                synchronize(arguments.device)
                start, start_of_work = time.perf_counter(), time.process_time()
                for _ in range(arguments.calls):
                    run()
                worked[who].append((time.process_time() - start_of_work) / arguments.calls * 1e6)
                passed[who].append((time.perf_counter() - start) / arguments.calls * 1e6)
    return tuple({who: choose(values) for who, values in times.items()} for choose, times in (
        (statistics.median, passed), (statistics.median, worked), (min, worked)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"),
                        default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--cols", type=int, default=64)
    parser.add_argument("--type", default="float32")
    parser.add_argument("--calls", type=int, default=200, help="calls per batch")
    parser.add_argument("--batches", type=int, default=51)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CALL")
    parser.add_argument("--package", default=dorajit.__version__, help="name of the package in the report")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.device == "cuda":
        from peers import backward_two_stage, compose as compose_peer, norm_assembly as norm_peer
        PEERS.update(backward_two_stage=backward_two_stage, compose=compose_peer,
                     norm_assembly=norm_peer)
    conditions = {"package": arguments.package, "device": arguments.device, "torch": torch.__version__,
                  "type": arguments.type, "rows x cols": [arguments.rows, arguments.cols], "load": os.getloadavg()[0]}
    results = []
    print(f"{arguments.device}, {arguments.type} {arguments.rows}x{arguments.cols}, PyTorch "
          f"{torch.__version__}, load {conditions['load']:.1f}; microseconds a call (over dorajit's)")
    with dorajit.force_native():
        for name in arguments.only:
            case = CASES[name]
            result = {"call": name}
            measured = measure(name, case(*operands(arguments)), arguments)
            for what, times in zip(("median", "median_cpu", "least_cpu"), measured):
                ratios = {who: value / times["dorajit"] for who, value in times.items()}
                result[f"{what}_us"] = times
                print(f"{name}, {what.replace('_', ' '):<10}  " + "  ".join(
                    f"{who} {value:.2f} ({ratios[who]:.2f})" for who, value in times.items()),
                    flush=True)
            results.append(result)
    report.write(arguments.json, conditions, results)


if __name__ == "__main__":
    main()
