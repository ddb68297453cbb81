"""compose_inner: compose, and inner = scale * lora + base."""

import torch

from operations.contender import SCALE, compiled, stream, views
from operations.verdict import Expected
from peers import compose as peer


class ComposeInner:
    name = "compose_inner"
    contenders = ("dorajit", "triton", "torch_eager", "torch_compile", "torch_add")

    @staticmethod
    def moved_bytes(case):
        return 4 * case.matrix_bytes + case.gain_bytes

    @staticmethod
    def added_bytes(case):
        return 3 * case.matrix_bytes

    @staticmethod
    def precompile(dtype, gain_dtype):
        peer.compile_compose_inner(dtype, gain_dtype)

    def __init__(self, case, sets):
        self._sets = [(case.activations(), case.activations(), case.gain(), case.unwritten(),
                       case.unwritten()) for _ in range(sets)]

    def dorajit(self, library):
        sets = views(self._sets)

        def run(index):
            lora, base, gain, out, inner = sets[index]
            library.compose_inner(stream(), lora, base, gain, SCALE, out, inner)
        return run

    def triton(self):
        def run(index):
            lora, base, gain, out, inner = self._sets[index]
            peer.compose_inner(lora, base, gain, SCALE, out, inner)
        return run

    def torch_eager(self):
        def run(index):
            lora, base, gain, out, inner = self._sets[index]
            scaled_lora = SCALE * lora
            torch.add(scaled_lora, base, out=inner)
            torch.add((gain - 1) * base, gain * scaled_lora, out=out)
        return run

    def torch_compile(self):
        def compose_inner(lora, base, gain, out, inner):
            scaled_lora = SCALE * lora
            inner.copy_(scaled_lora + base)
            out.copy_((gain - 1) * base + gain * scaled_lora)
        function = compiled(compose_inner)
        return lambda index: function(*self._sets[index])

    def torch_add(self):
        def run(index):
            lora, base, _, out, _ = self._sets[index]
            torch.add(lora, base, out=out)
        return run

    def outputs(self):
        return {"out": self._sets[0][3], "inner": self._sets[0][4]}

    def expected(self):
        lora, base, gain = (tensor.float() for tensor in self._sets[0][:3])
        scaled_lora = SCALE * lora
        return {"out": Expected((gain - 1) * base + gain * scaled_lora),
                "inner": Expected(scaled_lora + base)}

    @staticmethod
    def chosen_config(contender):
        return peer.chosen_inner_config() if contender == "triton" else None
