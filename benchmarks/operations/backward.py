"""backward: d_lora = gain * scale * d_out, d_base = (gain - 1) * d_out, and d_gain, the sum of
inner * d_out over the rows."""

import torch

from operations.contender import SCALE, compiled, stream, views
from operations.verdict import Expected
from peers import backward_sum, backward_two_stage


class Backward:
    name = "backward"
    contenders = ("dorajit", "triton", "triton_two_stage", "torch_eager", "torch_compile",
                  "torch_add")

    @staticmethod
    def moved_bytes(case):
        return 4 * case.matrix_bytes + 2 * case.gain_bytes

    @staticmethod
    def added_bytes(case):
        return 3 * case.matrix_bytes

    @staticmethod
    def precompile(dtype, gain_dtype):
        backward_sum.compile_backward(dtype, gain_dtype)
        backward_two_stage.compile_backward(dtype, gain_dtype)

    def __init__(self, case, sets):
        self._case = case
        self._sets = [(case.activations(), case.activations(), case.gain(), case.unwritten(),
                       case.unwritten(), torch.empty_like(case.gain())) for _ in range(sets)]

    def dorajit(self, library):
        sets = views(self._sets)
        size = library.backward_workspace(sets[0][0], sets[0][2])
        workspace = torch.empty(size, dtype=torch.uint8, device="cuda")

        def run(index):
            d_out, inner, gain, d_lora, d_base, d_gain = sets[index]
            library.backward(stream(), d_out, inner, gain, SCALE, d_lora, d_base, d_gain,
                             workspace.data_ptr() or None, size)
        return run

    def triton(self):
        product = self._case.unwritten()

        def run(index):
            d_out, inner, gain, d_lora, d_base, d_gain = self._sets[index]
            backward_sum.backward(d_out, inner, gain, SCALE, d_lora, d_base, d_gain, product)
        return run

    def triton_two_stage(self):
        partials = torch.empty(backward_two_stage.workspace_shape(self._case.rows, self._case.cols),
                               device="cuda")

        def run(index):
            d_out, inner, gain, d_lora, d_base, d_gain = self._sets[index]
            backward_two_stage.backward(d_out, inner, gain, SCALE, d_lora, d_base, d_gain, partials)
        return run

    def torch_eager(self):
        def run(index):
            d_out, inner, gain, d_lora, d_base, d_gain = self._sets[index]
            torch.mul(gain * SCALE, d_out, out=d_lora)
            torch.mul(gain - 1, d_out, out=d_base)
            torch.sum(inner * d_out, dim=0, dtype=d_gain.dtype, out=d_gain)
        return run

    def torch_compile(self):
        def backward(d_out, inner, gain, d_lora, d_base, d_gain):
            d_lora.copy_((gain * SCALE) * d_out)
            d_base.copy_((gain - 1) * d_out)
            d_gain.copy_((inner * d_out).sum(dim=0))
        function = compiled(backward)
        return lambda index: function(*self._sets[index])

    def torch_add(self):
        def run(index):
            d_out, inner, _, d_lora, _, _ = self._sets[index]
            torch.add(d_out, inner, out=d_lora)
        return run

    def outputs(self):
        return dict(zip(("d_lora", "d_base", "d_gain"), self._sets[0][3:]))

    def expected(self):
        d_out, inner, gain = (tensor.float() for tensor in self._sets[0][:3])
        terms = inner.double() * d_out.double()
        return {"d_lora": Expected((gain * SCALE) * d_out), "d_base": Expected((gain - 1) * d_out),
                "d_gain": Expected(terms.sum(dim=0), terms.abs().sum(dim=0))}

    def chosen_config(self, contender):
        if contender == "triton":
            return backward_sum.chosen_config()
        if contender == "triton_two_stage":
            return backward_two_stage.chosen_config(self._sets[0][0], self._sets[0][2])
        return None
