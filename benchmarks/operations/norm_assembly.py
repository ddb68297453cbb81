"""norm_assembly: norm = sqrt(max((w + 2 * scale * cross) + scale^2 * ba, 0)), one per column."""

import torch

from operations.contender import SCALE, compiled, stream, views
from operations.verdict import Expected
from peers import norm_assembly as peer


class NormAssembly:
    name = "norm_assembly"
    contenders = ("dorajit", "triton", "torch_eager", "torch_compile", "torch_add")

    @staticmethod
    def moved_bytes(case):
        return 4 * case.gain_bytes

    @staticmethod
    def added_bytes(case):
        return 3 * case.gain_bytes

    @staticmethod
    def precompile(dtype, gain_dtype):
        """One small kernel, compiled by its first call."""

    def __init__(self, case, sets):
        self._sets = [self._vectors(case) for _ in range(sets)]

    @staticmethod
    def _vectors(case):
        w_norm_sq, ba_norm_sq = (torch.rand(case.cols, device="cuda").to(case.gain_dtype)
                                 for _ in range(2))
        # A range in which some of the sums are negative and clamped.
        cross = torch.randn(case.cols, device="cuda").to(case.gain_dtype)
        return w_norm_sq, cross, ba_norm_sq, torch.empty_like(cross)

    def dorajit(self, library):
        sets = views(self._sets)

        def run(index):
            w_norm_sq, cross, ba_norm_sq, norm = sets[index]
            library.norm_assembly(stream(), w_norm_sq, cross, ba_norm_sq, SCALE, norm)
        return run

    def triton(self):
        def run(index):
            w_norm_sq, cross, ba_norm_sq, norm = self._sets[index]
            peer.norm_assembly(w_norm_sq, cross, ba_norm_sq, SCALE, norm)
        return run

    def torch_eager(self):
        def run(index):
            w_norm_sq, cross, ba_norm_sq, norm = self._sets[index]
            torch.sqrt(torch.clamp_min(_square(w_norm_sq, cross, ba_norm_sq), 0), out=norm)
        return run

    def torch_compile(self):
        def norm_assembly(w_norm_sq, cross, ba_norm_sq, norm):
            norm.copy_(torch.sqrt(torch.clamp_min(_square(w_norm_sq, cross, ba_norm_sq), 0)))
        function = compiled(norm_assembly)
        return lambda index: function(*self._sets[index])

    def torch_add(self):
        def run(index):
            w_norm_sq, cross, _, norm = self._sets[index]
            torch.add(w_norm_sq, cross, out=norm)
        return run

    def outputs(self):
        return {"norm": self._sets[0][3]}

    def expected(self):
        square = torch.clamp_min(_square(*(tensor.float() for tensor in self._sets[0][:3])), 0)
        # A root taken in fp64 and rounded to fp32 is the correctly rounded fp32 root.
        return {"norm": Expected(torch.sqrt(square.double()).float())}

    @staticmethod
    def chosen_config(contender):
        """None: the only tunable, the block size, is fixed."""


def _square(w_norm_sq, cross, ba_norm_sq):
    return (w_norm_sq + (2 * SCALE) * cross) + (SCALE * SCALE) * ba_norm_sq
