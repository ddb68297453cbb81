"""Layers of dorajit.nn, operands of dorajit.dora_linear, and reference implementations."""

import dorajit
import torch
import torch.nn.functional as F
from torch import nn

F32, BF16, F16, F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64
SCALE = 0.75
NAMES = ["x", "lora_A", "lora_B", "magnitude"]
STEP = {"norm": 1, "compose_residual": 1, "residual_backward": 1}
# Element types of (x and the weight, the factors, the magnitude).
MIXES = [(F32, F32, F32), (BF16, BF16, BF16), (BF16, BF16, F32), (F16, F16, F32), (BF16, F32, F32), (F16, F32, F32),
         (F32, BF16, F32), (F64, F64, F64), (F64, F64, F32), (F32, F64, F32), (F32, F32, F64)]


def layer_and_input(kind, device, dtype=F32, rank=3, **options):
    """A new layer of dorajit.nn and its input."""
    if kind == "embedding":
        base = nn.Embedding(30, 12, device=device, dtype=dtype)
        return dorajit.nn.DoRAEmbedding.from_embedding(base, rank, 6, **options), torch.randint(30, (2, 5), device=device)
    if kind.startswith("linear"):
        base = nn.Linear(20, 12, bias=kind == "linear", device=device, dtype=dtype)
        return dorajit.nn.DoRALinear.from_linear(base, rank, 6, **options), torch.randn(2, 5, 20, device=device).to(dtype)
    dims = int(kind[4])
    base = getattr(nn, f"Conv{dims}d")(4, 6, 3, stride=2, padding=1, device=device, dtype=dtype)
    made = getattr(dorajit.nn, f"DoRAConv{dims}d").from_conv(base, rank, 6, **options)
    return made, torch.randn((2, 4) + (7,) * dims, device=device).to(dtype)


def operands(device, types=(F32, F32, F32), shape=(5, 24), out=40, rank=3, bias=True, trained=NAMES):
    """x, weight, A, B, magnitude and bias; those in `trained` require grad."""
    base, factors, magnitudes = types
    made = {"x": torch.randn(shape).to(base), "weight": torch.randn(out, shape[-1]).to(base) / 5,
            "lora_A": torch.randn(rank, shape[-1]).to(factors) / 5, "lora_B": torch.randn(out, rank).to(factors)}
    dense = made["weight"].double() + SCALE * made["lora_B"].double() @ made["lora_A"].double()
    made["magnitude"] = (dense.norm(dim=1) * (1 + torch.randn(out) / 4)).to(magnitudes)
    made["bias"] = torch.randn(out).to(base) if bias else None
    return {name: one if one is None else one.to(device).requires_grad_(name in trained) for name, one in made.items()}


def operands_and_seed(device, *types, **options):
    """(operands of 5 rows, the gradient of their output)."""
    return operands(device, *types, **options), torch.randn(5, 40, device=device)


def ours(of):
    return dorajit.dora_linear(of["x"], of["weight"], of["lora_A"], of["lora_B"], of["magnitude"], SCALE, of["bias"])


def exact(of):
    """The layer in float64."""
    x, weight, a, b, magnitude = (of[name].double() for name in ("x", "weight", "lora_A", "lora_B", "magnitude"))
    adapted = weight + SCALE * b @ a
    gain = magnitude.reshape(-1) / adapted.detach().norm(dim=1)
    return F.linear(x, gain[:, None] * adapted, None if of["bias"] is None else of["bias"].double())


def trained(of):
    return [one for one in of.values() if one is not None and one.requires_grad]


def step(function, of, seed):
    out = function(of)
    return [out.detach(), *torch.autograd.grad(out, trained(of), seed.to(out.dtype))]


def assert_near(found, expected, bound):
    """Compares errors relative to the largest element."""
    for one, other in zip(found, expected, strict=True):
        error = (one.double() - other.double()).abs().max() / other.double().abs().max()
        assert error <= bound, f"{error:.2e} of a tensor of shape {tuple(one.shape)}"


def bound_of(types):
    if BF16 in types[:2]:
        return 2e-2
    return 3e-3 if F16 in types[:2] else 1e-12 if set(types) == {F64} else 3e-6


def with_norm(of, norm):
    """The layer with constant norms."""
    adapted = of["weight"] + SCALE * of["lora_B"] @ of["lora_A"]
    return F.linear(of["x"], (of["magnitude"] / norm)[:, None] * adapted, of["bias"])


def with_parameters(of):
    """The operands as parameters of a layer, each with another version."""
    made = {name: torch.nn.Parameter(of[name].detach(), requires_grad=of[name].requires_grad)
            for name in ("weight", "lora_A", "lora_B", "magnitude")}
    with torch.no_grad():
        for i, one in enumerate(made.values()):
            for _ in range(i):
                one.mul_(1)
    return {**of, **made}


def saving(kept):
    """Saved-tensor hooks that append copies of saved tensors to a list."""
    return torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one.clone()) or one, lambda one: one)
