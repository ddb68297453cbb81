"""The backward pass of a gated MLP's activation with SiLU. dorajit: one kernel, which also
scales by the gains and sums for the magnitudes. apart: without the activation's output, by Liger's SwiGLU kernel, if the
package liger_kernel is there, and a magnitude_backward for each of gate and up. copy: as many bytes.
"""

import importlib.util

import torch

from cases.compose import multiply_adds, relative_error
from dorajit.operations.expression import formulas
from dorajit.operations.table import operations

__all__ = ["RANKS", "SHAPES", "TYPES", "contenders", "errors", "multiply_adds", "operands"]

SHAPES = {"cuda": [(4096, 8192), (4096, 12288), (4096, 14336), (8192, 12288)], "cpu": [(4096, 4096), (2048, 11008)]}
RANKS = {"cuda": [None], "cpu": [None]}
# Types of the activations, and of the gains and magnitudes.
TYPES = {"bf16": (torch.bfloat16, torch.bfloat16), "bf16_f32gain": (torch.bfloat16, torch.float32)}
NAME = "gated_silu_backward"


def operands(shape, _, types, device):
    """The inputs, then the outputs: the activation's output, the gradients of the products, those of the magnitudes."""
    d_out, gate, up = (torch.randn(shape, device=device).to(types[0]) for _ in range(3))
    gains = [(1 + torch.randn(shape[1], device=device) / 8).to(types[1]) for _ in range(2)]
    magnitudes = [torch.ones_like(one) for one in gains]
    return d_out, gate, up, *gains, *magnitudes, *map(torch.zeros_like, (d_out, gate, up, *gains))


def dorajit(*given):
    return operations[NAME].launch(*given)


def apart(d_out, gate, up, gate_gain, up_gain, gate_magnitude, up_magnitude, _, d_gate, d_up, *sums):
    """Liger's kernel writes over gate and up, which has the time of a kernel that does not."""
    from liger_kernel.ops.swiglu import swiglu_backward
    given = zip(swiglu_backward(gate, up, d_out), (gate, up), (gate_gain, up_gain), (gate_magnitude, up_magnitude),
                (d_gate, d_up), sums)
    return [operations["magnitude_backward"].launch(one, inner, gain, magnitude, to, None, of_magnitude, 1.0)
            for one, inner, gain, magnitude, to, of_magnitude in given]


def contenders(given):
    read, written = (given[0].new_zeros(3 * given[0].numel()) for _ in range(2))
    calls = {"dorajit": dorajit, "copy": lambda *_: written.copy_(read)}
    if given[0].is_cuda and importlib.util.find_spec("liger_kernel"):
        calls["apart"] = apart
    return calls


def errors(given, calls):
    """The largest of the five results of dorajit; the others have fewer."""
    expected = formulas[NAME].compute(*(one.double() for one in given[:7]), (True,) * 4)
    return {"error": {name: max(map(relative_error, call(*given), expected)) for name, call in calls.items()
                      if name == "dorajit"}}
