"""A magnitude that is nearly the norm changes the output: a gain of 1 + d changes it by a share of d, although
rounding to 16 bits is coarser than that."""

import dorajit
import pytest
import torch
from linear_layers import BF16, F16, MIXES, SCALE, exact, operands

TOKENS, OUT = 8192, 48


@pytest.mark.parametrize("types", [one for one in MIXES if one[2] is not BF16])  # bfloat16 has no number so near to 1
@pytest.mark.parametrize("deviation", [0.0005, 0.0015, -0.0015])
@pytest.mark.parametrize("way", ["node", "composed", "compiled"])
def test_small_change_of_magnitude_survives_rounding_of_the_output(device, types, deviation, way):
    torch.manual_seed(5)
    of = operands(device, types, (TOKENS, 24), out=OUT, rank=8, bias=False, trained=())
    norm = dorajit.weight_norm(of["weight"], of["lora_A"], of["lora_B"], SCALE)
    function = dorajit.dora_linear
    if way == "compiled":
        torch._dynamo.reset()
        function = torch.compile(function, backend="aot_eager")
    def out(gain):
        given = *(of[name] for name in ("x", "weight", "lora_A", "lora_B")), (norm * gain).to(types[2]), SCALE
        if way == "composed":
            return dorajit.layers.linear._composed(*given, None).double()
        return function(*given).double()
    of["magnitude"] = norm
    ideal = exact(of)
    share = ((out(1 + deviation) - out(1)) * ideal).sum() / ideal.square().sum() / deviation
    # If the low-rank result is rounded to 16 bits, its rounding steps are as large as the effect.
    is_rounded = types[1] in (BF16, F16) and (way == "composed" or device == "cpu")
    assert 0.98 < share.item() < (1.2 if is_rounded else 1.02)
