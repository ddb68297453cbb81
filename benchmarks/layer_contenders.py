"""What layers.py measures: the same stack of layers with the adapters of PEFT, dorajit and other open kernels."""

import dataclasses
import functools
import importlib
import sys
import warnings

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from peft.utils.integrations import dequantize_module_weight
from torch import nn
from torch.utils.checkpoint import checkpoint

import dorajit

# Above this rank the open kernels' norm is the one that they have in PyTorch: their Triton kernel is unrolled over the
# rank and recomputes B A for each row.
_OPEN_NORM_RANK = 64


@dataclasses.dataclass(frozen=True)
class Implementation:
    name: str
    by: str  # "PEFT", "dorajit" or "open kernels"
    use_dora: bool = True
    dropout: str = "peft"  # the meaning, for dorajit
    low_rank_dtype: str = "adapter"
    float32_magnitudes: bool = False
    joins_mlp: bool = True


IMPLEMENTATIONS = {
    "lora": Implementation("LoRA, PEFT", "PEFT", use_dora=False),
    "dora": Implementation("DoRA, PEFT", "PEFT"),
    "dorajit": Implementation("DoRA, dorajit", "dorajit"),
    "low_rank": Implementation("DoRA, dorajit, low_rank dropout", "dorajit", dropout="low_rank"),
    "base_products": Implementation("DoRA, dorajit, products in the base's type", "dorajit", low_rank_dtype="base"),
    "layers": Implementation("DoRA, dorajit, layer by layer", "dorajit", joins_mlp=False),
    "float32_magnitudes": Implementation("DoRA, dorajit, fp32 magnitudes", "dorajit", float32_magnitudes=True),
    "open_lora": Implementation("LoRA, open kernels", "open kernels", use_dora=False),
    "open_dora": Implementation("DoRA, open kernels", "open kernels"),
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """Element types, and whether bf16 autocast is on."""

    suffix: str  # of a contender's name
    base: torch.dtype
    adapters: torch.dtype
    autocast: bool = False


def type_name(dtype):
    return str(dtype).removeprefix("torch.")


class MLP(nn.Module):
    """As in the models of transformers."""

    def __init__(self, width, inner):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, width, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Grouped-query attention and a gated MLP."""

    def __init__(self, options):
        super().__init__()
        width, inner, kv = options.width, options.inner, options.kv
        self.head = min(128, kv)
        self.q_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(width, kv, bias=False) for _ in range(2))
        self.mlp = MLP(width, inner)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))

    # The open kernels replace the next two methods and the forward of the MLP.
    def qkv(self, x):
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)

    def o(self, x):
        return self.o_proj(x)

    def heads(self, x):
        return x.unflatten(-1, (-1, self.head)).transpose(1, 2)

    def forward(self, x):
        # Under autocast PyTorch's norm returns float32, but those of transformers' models the type of their input.
        q, k, v = (self.heads(one) for one in self.qkv(self.norms[0](x).to(x.dtype)))
        repeated = q.shape[1] // k.shape[1]
        k, v = (one.repeat_interleave(repeated, 1) for one in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x).to(x.dtype))


class Stack(nn.Module):
    """The layers; each is checkpointed while gradients are computed, by default."""

    def __init__(self, options):
        super().__init__()
        self.is_checkpointed = True
        width = options.width
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) if options.plain else Layer(options)
                                    for _ in range(options.layers))

    def forward(self, x):
        is_checkpointed = self.is_checkpointed and torch.is_grad_enabled()
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if is_checkpointed else layer(x)
        return x


def to_nf4(module, device):
    """Replaces the linear layers by those of QLoRA."""
    import bitsandbytes as bnb
    how = {"compress_statistics": True, "quant_type": "nf4"}
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            quantized = bnb.nn.Linear4bit(child.in_features, child.out_features, bias=False,
                                          compute_dtype=torch.bfloat16, **how)
            quantized.weight = bnb.nn.Params4bit(child.weight.data, requires_grad=False, **how)
            setattr(module, name, quantized.to(device))
        else:
            to_nf4(child, device)


def make(options, rank, use_dora, base, adapters, quantized=None):
    """PEFT's model, with a B that is not zero and magnitudes that differ from the norms."""
    torch.manual_seed(0)
    with torch.device(options.device):
        stack = Stack(options).to(base)
    if quantized:
        to_nf4(stack, options.device)
    config = LoraConfig(use_dora=use_dora, r=rank, lora_alpha=max(rank // 2, 1), use_rslora=True,
                        lora_dropout=options.dropout,
                        target_modules=r"layers\.\d+" if options.plain else r".*_proj")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(stack, config)
    generator = torch.Generator(options.device).manual_seed(1)
    with torch.no_grad():
        for name, one in sorted(model.named_parameters()):
            if "lora_B" in name:
                one.copy_(torch.randn(one.shape, generator=generator, device=one.device) * 1e-3)
        for name, one in sorted(model.named_parameters()):
            if "magnitude" in name:
                one.mul_(1 + torch.randn(one.shape, generator=generator, device=one.device) * 1e-2)
    for one in model.parameters():
        if one.requires_grad:
            one.data = one.data.to(adapters)
    return model


def use_open_kernels(stack, rank, folder):
    """Patches the layers as Axolotl's apply_lora_kernel_patches does those of a transformers model."""
    if folder not in sys.path:
        sys.path.append(folder)
    kernels = importlib.import_module("axolotl.kernels.lora")
    kernels._USE_TRITON_DORA = rank <= _OPEN_NORM_RANK
    for layer in stack.layers:
        if isinstance(layer, Layer):
            layer.qkv = functools.partial(kernels.apply_lora_qkv, layer)
            layer.o = functools.partial(kernels.apply_lora_o, layer)
            layer.mlp.forward = functools.partial(kernels.apply_lora_mlp_swiglu, layer.mlp)
        else:
            layer.forward = functools.partial(kernels.apply_lora_linear, layer)


class Contender:
    """An implementation in a setting."""

    def __init__(self, implementation, setting, options, rank):
        self.name = implementation.name + setting.suffix
        self.implementation, self.setting, self.options, self.rank = implementation, setting, options, rank
        self.model = make(options, rank, implementation.use_dora, setting.base, setting.adapters, options.quantized)
        self.stack = self.model.base_model.model
        self.trained = {name: one for name, one in self.model.named_parameters() if one.requires_grad}
        if implementation.float32_magnitudes:
            for one in self.magnitudes():
                one.data = one.data.float()
        if implementation.by == "dorajit":
            dorajit.patch_peft(self.model, strict=True, mlp=True)  # only this model, and never undone
        elif implementation.by == "open kernels":
            use_open_kernels(self.stack, rank, options.peer)
        self.run = torch.compile(self.model, mode=options.compiled) if options.compiled else self.model
        # Contenders share code objects, but each must compile its own graphs.
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1024

    def magnitudes(self):
        return [one for name, one in self.trained.items() if "magnitude" in name]

    def description(self):
        """The fields of a row that tell what the contender is."""
        return {"name": self.name, "rank": self.rank, "base": self.options.quantized or type_name(self.setting.base),
                "adapters": type_name(self.setting.adapters),
                "magnitudes": next((type_name(one.dtype) for one in self.magnitudes()), None),
                "autocast": self.setting.autocast, "dropout": self.options.dropout}

    def autocast(self):
        return torch.autocast(self.options.device, dtype=torch.bfloat16, enabled=self.setting.autocast)

    def prepare(self):
        """What comes before a step or a forward pass and is not part of its time."""
        dorajit.control.state.joins_mlp = self.implementation.joins_mlp
        dorajit.set_low_rank_dtype(self.implementation.low_rank_dtype)
        if self.options.dropout:
            dorajit.set_dropout(self.implementation.dropout)

    def change_adapters(self):
        """As far as caches of norms can see, what an optimizer does before each step."""
        torch.autograd.graph.increment_version(self.trained.values())

    def step(self, x):
        with self.autocast():
            self.run(x).float().square().mean().backward()
        self.model.zero_grad(set_to_none=True)

    def output(self, x):
        with torch.no_grad(), self.autocast():
            return self.run(x)

    def cosine(self, x):
        """Of the output without dropout with that of PEFT in float32, with the same parameters."""
        expected = make(self.options, self.rank, self.implementation.use_dora, torch.float32, torch.float32).eval()
        parameters = self.model.state_dict() | {
            f"{name}.weight": dequantize_module_weight(one)
            for name, one in self.model.named_modules() if isinstance(one, nn.Linear)}
        expected.load_state_dict({name: parameters[name] for name in expected.state_dict()})
        # Not by eval(), in which bitsandbytes packs 4-bit weights for inference on a CPU.
        dropouts = [one for one in self.model.modules() if isinstance(one, nn.Dropout)]
        self.prepare()
        for one in dropouts:
            one.p = 0.0
        found = self.output(x)
        for one in dropouts:
            one.p = self.options.dropout
        with torch.no_grad():
            return F.cosine_similarity(*(one.double().flatten() for one in (found, expected(x.float()))), dim=0).item()
