"""Models of the recipes that people train with, and a step of one."""

import pytest
import torch

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.checkpoint import checkpoint

IN, OUT, RANK = 64, 128, 4
F32, BF16, F64 = torch.float32, torch.bfloat16, torch.float64


def plain(dtype, bias, device):
    return nn.Sequential(nn.Linear(IN, OUT, bias=bias)).to(device, dtype)


def nf4(dtype, bias, device):
    bitsandbytes = pytest.importorskip("bitsandbytes", exc_type=ImportError)
    layer = bitsandbytes.nn.Linear4bit(IN, OUT, bias=bias, quant_type="nf4", compute_dtype=dtype)
    layer.load_state_dict(nn.Linear(IN, OUT, bias=bias).state_dict())
    model = nn.Sequential(layer.to(device))
    model.is_loaded_in_4bit = True
    return model


def hqq(dtype, bias, device):
    quantize = pytest.importorskip("hqq.core.quantize", exc_type=ImportError)
    config = quantize.BaseQuantizeConfig(nbits=4, group_size=64)
    return nn.Sequential(quantize.HQQLinear(nn.Linear(IN, OUT, bias=bias), config, compute_dtype=dtype, device=device))


def torchao(dtype, bias, device):
    quantization = pytest.importorskip("torchao.quantization", exc_type=ImportError)
    model = plain(dtype, bias, device)
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    return model


def int8(dtype, bias, device):
    layers = pytest.importorskip("bitsandbytes", exc_type=ImportError).nn
    layer = layers.Linear8bitLt(IN, OUT, bias=bias, has_fp16_weights=False)
    layer.load_state_dict(nn.Linear(IN, OUT, bias=bias).state_dict())
    model = nn.Sequential(layer.to(device))
    model.is_loaded_in_8bit = True
    return model


BASES = [plain, nf4, hqq, torchao]  # those whose layers run as one node
# Element type of the base, whether adapters are float32, whether autocast is on.
SETTINGS = [(F32, True, False), (BF16, False, False), (BF16, True, False), (BF16, True, True)]


def adapted(base, device, dtype=F32, float32=True, dropout=0.0, bias=True, new=False):
    """A model with one adapter, which is a no-op if it is `new`."""
    torch.manual_seed(0)
    config = LoraConfig(r=RANK, use_dora=True, target_modules=["0"], lora_dropout=dropout, init_lora_weights=new)
    try:
        model = get_peft_model(base(dtype, bias, device), config, autocast_adapter_dtype=float32)
    except ImportError as error:
        pytest.skip(f"this PEFT does not work with this version of the package: {error}")
    with torch.no_grad():
        for name, one in () if new else model.named_parameters():
            if "magnitude" in name:
                one.mul_(1 + 0.05 * torch.randn(one.shape).to(one))
            elif "lora_" in name:
                one.mul_(0.3)
    return model


def step(model, x, autocast=False, reentrant=None):
    """The output, the gradient of x and those of the parameters, by name."""
    x = x.detach().clone().requires_grad_()
    torch.manual_seed(5)
    with torch.autocast(x.device.type, dtype=BF16, enabled=autocast):
        out = model(x) if reentrant is None else checkpoint(model, x, use_reentrant=reentrant)
    weights = torch.linspace(-1, 1, out.numel(), device=x.device).view(out.shape)
    (out.double() * weights).sum().backward()
    found = {"out": out.detach(), "x": x.grad,
             **{name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}}
    model.zero_grad()
    return found, out


def as_found(expected, found):
    """Rounds PEFT's output to the type of the patched layer's. Over a quantized base PEFT returns the float32 of the
    magnitude under CUDA's autocast; the patched layer returns the type of the base layer, as PEFT's LoRA does."""
    if expected["out"].is_cuda:
        expected["out"] = expected["out"].to(found["out"].dtype)


def assert_near(found, expected, bound):
    assert found.keys() == expected.keys()
    for name, one in found.items():
        other = expected[name]
        assert one.dtype is other.dtype and one.shape == other.shape
        error = (one.double() - other.double()).norm() / other.double().norm()
        assert error <= bound, f"{name}: {error:.1e}"


def is_node(out):
    return out.grad_fn is not None and "DoraLinear" in out.grad_fn.name()
