"""Small models with one adapted layer, and comparisons of their results."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")
Conv1D = pytest.importorskip("transformers.pytorch_utils", reason="transformers is not installed").Conv1D

from peft import LoraConfig, get_peft_model
from reference import perturb


class Base(nn.Module):
    """A model with one layer, `layer`, and a function that makes its input."""

    def __init__(self, kind, bias=True):
        super().__init__()
        self.kind = kind
        if kind == "embedding":
            self.layer = nn.Embedding(30, 12)
        elif kind == "conv1d_gpt2":
            self.layer = Conv1D(12, 20)
        elif kind == "linear":
            self.layer = nn.Linear(20, 12, bias=bias)
        else:
            self.layer = getattr(nn, f"Conv{kind[4]}d")(4, 6, 3, padding=1, bias=bias)

    def forward(self, x):
        return self.layer(x)

    def example(self, device, dtype=torch.float32):
        if self.kind == "embedding":
            return torch.randint(30, (2, 5), device=device)
        shape = (2, 5, 20) if self.kind in ("linear", "conv1d_gpt2") else ((2, 4) + (7,) * int(self.kind[4]))
        return torch.randn(shape, device=device).to(dtype)


KINDS = ["linear", "conv1d_gpt2", "conv1d", "conv2d", "conv3d", "embedding"]


def adapted(kind, device, dtype=torch.float32, bias=True, autocast=True, **options):
    torch.manual_seed(3)
    base = Base(kind, bias).to(device, dtype)
    config = LoraConfig(use_dora=True, target_modules=["layer"], r=4, lora_alpha=8,
                        fan_in_fan_out=kind == "conv1d_gpt2", **options)
    return get_peft_model(base, config, autocast_adapter_dtype=autocast)


def model_and_input(kind, device, dtype=torch.float32, trains=True, **options):
    """(a model whose adapter is not a no-op, its input)."""
    model = perturb(adapted(kind, device, dtype, **options)).train(trains)
    return model, model.base_model.model.example(device, dtype)


def results(model, x, seed=11):
    """(output, gradients of parameters by name, gradient of the input)."""
    model.zero_grad()
    x = x.detach().clone().requires_grad_(x.is_floating_point())
    torch.manual_seed(seed)
    out = model(x)
    torch.manual_seed(seed)
    out.backward(torch.randn_like(out))
    grads = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    return out.detach(), grads, x.grad


def assert_same(found, expected, step):
    out, grads, of_x = found
    assert grads.keys() == expected[1].keys() and grads
    torch.testing.assert_close(out, expected[0], rtol=step, atol=step)
    for name, grad in grads.items():
        scale = expected[1][name].float().abs().max().item()
        torch.testing.assert_close(grad.float(), expected[1][name].float(), rtol=step,
                                   atol=step * max(scale, 1), msg=lambda m, name=name: f"{name}: {m}")
    if of_x is not None:
        torch.testing.assert_close(of_x.float(), expected[2].float(), rtol=step, atol=step * 4)


class Checkpointed(nn.Module):
    """A model whose forward pass runs again in the backward pass."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return checkpoint(self.model, x, use_reentrant=False)
