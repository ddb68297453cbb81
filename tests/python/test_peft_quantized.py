"""patch_peft with quantized base layers, on the CPU where their packages support it."""

import dorajit
import pytest
import torch
from torch import nn

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft import LoraConfig, get_peft_model
from peft_models import assert_same, results
from perturbed import perturb

IN, OUT = 64, 128


def of_bitsandbytes(name, mark, device, **options):
    layers = pytest.importorskip("bitsandbytes", exc_type=ImportError).nn
    plain = nn.Linear(IN, OUT)
    layer = getattr(layers, name)(IN, OUT, **options)
    layer.load_state_dict(plain.state_dict())
    model = nn.Sequential(layer.to(device))
    setattr(model, mark, True)
    return model


def nf4(device):
    return of_bitsandbytes("Linear4bit", "is_loaded_in_4bit", device, quant_type="nf4",
                           compute_dtype=torch.float32)


def int8(device):
    return of_bitsandbytes("Linear8bitLt", "is_loaded_in_8bit", device, has_fp16_weights=False)


def hqq(device):
    quantize = pytest.importorskip("hqq.core.quantize", exc_type=ImportError)
    config = quantize.BaseQuantizeConfig(nbits=4, group_size=64)
    return nn.Sequential(quantize.HQQLinear(nn.Linear(IN, OUT), config,
                                            compute_dtype=torch.float32, device=device))


def torchao(device):
    quantization = pytest.importorskip("torchao.quantization", exc_type=ImportError)
    model = nn.Sequential(nn.Linear(IN, OUT, device=device))
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    return model


def adapted(make, device):
    torch.manual_seed(3)
    config = LoraConfig(use_dora=True, r=4, target_modules=["0"])
    try:
        return get_peft_model(make(device), config)
    except ImportError as error:
        pytest.skip(f"this PEFT does not work with this version of the package: {error}")


@pytest.mark.parametrize("make", [nf4, int8, hqq, torchao])
@pytest.mark.parametrize("made_patched", [True, False])
def test_patched_quantized_layer_matches_peft(device, layer_launches, make, made_patched):
    x = torch.randn(3, IN, device=device)
    expected = results(perturb(adapted(make, device)), x)
    model = None if made_patched else perturb(adapted(make, device))
    with dorajit.patch_peft(strict=True):
        model = model or perturb(adapted(make, device))
        layer_launches()
        found = results(model, x)  # once, because PEFT's DoRA over 8 bits fails in a second pass on a CPU
    assert layer_launches() == {"norm": 1, "compose_residual": 1, "residual_backward": 1}
    assert_same(found, expected, 1e-5)


@pytest.mark.parametrize("make", [nf4, hqq, torchao])
def test_new_adapter_does_not_change_outputs(device, launches, make):
    with dorajit.patch_peft(strict=True), torch.no_grad():
        model = adapted(make, device)
        x = torch.randn(3, IN, device=device)
        launches()
        found = model(x)
        assert launches()["compose_residual"] == 1
        with model.disable_adapter():
            # The node multiplies by the dequantized weight, torchao by integers and then by their scale, and bitsandbytes
            # on a GPU few rows by its own kernel.
            has_bits = make is hqq or (make is nf4 and device == "cpu")
            torch.testing.assert_close(found, model(x), rtol=0, atol=0 if has_bits else 1e-6)


@pytest.mark.parametrize("make", [nf4, hqq])
def test_merge_of_quantized_layer_matches_peft(device, make):
    """Merging quantizes again, so the result is only compared with that of an unpatched merge."""
    x = torch.randn(3, IN, device=device)
    outputs = []
    for patched in (True, False):
        # In training mode: for inference on a CPU bitsandbytes changes the layout of the weight, which its own
        # dequantization, and so a merge, then reads wrongly.
        model = perturb(adapted(make, device)).train()
        with torch.no_grad():
            before = model(x)
            patch = dorajit.patch_peft(strict=True) if patched else None
            model.merge_adapter()
            merged = model(x)
            assert not torch.equal(merged, before)
            model.unmerge_adapter()
            # A stale norm of the weight before merging would give a difference here.
            outputs += [merged, model(x)]
            if patch:
                patch.undo()
    for ours, theirs in zip(outputs[:2], outputs[2:]):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
