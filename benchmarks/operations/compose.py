"""compose: out = (gain - 1) * base + gain * (scale * lora)."""

import torch

from operations.contender import SCALE, compiled, stream, views
from operations.verdict import Expected
from peers import compose as peer


class Compose:
    name = "compose"
    contenders = ("dorajit", "triton", "torch_eager", "torch_compile", "torch_add")

    @staticmethod
    def moved_bytes(case):
        return 3 * case.matrix_bytes + case.gain_bytes

    @staticmethod
    def added_bytes(case):
        return 3 * case.matrix_bytes

    @staticmethod
    def precompile(dtype, gain_dtype):
        peer.compile_compose(dtype, gain_dtype)

    def __init__(self, case, sets):
        self._sets = [(case.activations(), case.activations(), case.gain(), case.unwritten())
                      for _ in range(sets)]

    def dorajit(self, library):
        sets = views(self._sets)

        def run(index):
            lora, base, gain, out = sets[index]
            library.compose(stream(), lora, base, gain, SCALE, out)
        return run

    def triton(self):
        def run(index):
            lora, base, gain, out = self._sets[index]
            peer.compose(lora, base, gain, SCALE, out)
        return run

    def torch_eager(self):
        def run(index):
            lora, base, gain, out = self._sets[index]
            torch.add((gain - 1) * base, gain * (SCALE * lora), out=out)
        return run

    def torch_compile(self):
        def compose(lora, base, gain, out):
            out.copy_((gain - 1) * base + gain * (SCALE * lora))
        function = compiled(compose)
        return lambda index: function(*self._sets[index])

    def torch_add(self):
        def run(index):
            lora, base, _, out = self._sets[index]
            torch.add(lora, base, out=out)
        return run

    def outputs(self):
        return {"out": self._sets[0][3]}

    def expected(self):
        lora, base, gain = (tensor.float() for tensor in self._sets[0][:3])
        return {"out": Expected((gain - 1) * base + gain * (SCALE * lora))}

    @staticmethod
    def chosen_config(contender):
        return peer.chosen_config() if contender == "triton" else None
