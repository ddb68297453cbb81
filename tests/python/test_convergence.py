"""Fine-tunes a small transformer with random weights, with PEFT's DoRA and with the patched one."""

import dorajit
import pytest
import torch
import torch.nn.functional as F
from torch import nn

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

STEPS, WIDTH, VOCABULARY, LENGTH, BATCH = 200, 32, 24, 16, 4
MOST = 7.1e-4  # mean difference per step; arXiv:2603.22276, table 10


class MLP(nn.Module):
    """Has the forward of Llama's."""

    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Parameter(torch.randn(LENGTH, WIDTH) / 4)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.mlp = MLP()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place
        given = self.norms[0](x)
        q, k, v = (one(given).unflatten(-1, (4, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return self.head(x + self.mlp(self.norms[1](x)))


def batches(seed):
    """Sequences that count up by small steps, which the model can learn."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        start = torch.randint(VOCABULARY, (BATCH, 1), generator=generator)
        step = torch.randint(1, 4, (BATCH, 1), generator=generator)
        yield (start + step * torch.arange(LENGTH + 1)) % VOCABULARY


def quantized(model):
    """With linear layers in NF4 with double quantization."""
    layers = pytest.importorskip("bitsandbytes", exc_type=ImportError).nn
    for name, one in list(model.named_children()):
        if isinstance(one, MLP):
            quantized(one)
        if isinstance(one, nn.Linear):
            made = layers.Linear4bit(one.in_features, one.out_features, one.bias is not None, torch.float32,
                                     compress_statistics=True, quant_type="nf4")
            made.load_state_dict(one.state_dict())
            setattr(model, name, made)
    model.is_loaded_in_4bit = True
    return model


def losses(seed, device, dtype, dropout=0.0, prepared=lambda model: model):
    torch.manual_seed(seed)
    config = peft.LoraConfig(use_dora=True, r=8, lora_alpha=16, lora_dropout=dropout,
                             target_modules=["q", "k", "v", "o", "gate_proj", "up_proj", "down_proj", "head"] + ["embed"] * (not dropout))
    model = peft.get_peft_model(prepared(Transformer()).to(device, dtype), config)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=3e-3)
    found = []
    for tokens in batches(seed):
        tokens = tokens.to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype is not torch.float32):
            logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found)


@pytest.fixture(autouse=True)
def one_thread():
    """One thread is fastest for such small matrices."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed, joins_mlp", [(1, True), (2, True), (3, True), (1, False)])
def test_training_losses_match_eager_peft(device, launches, seed, joins_mlp):
    eager = losses(seed, device, torch.float32)
    assert launches() == {}
    with dorajit.patch_peft(strict=True, mlp=joins_mlp):
        fused = losses(seed, device, torch.float32)
    assert sum(count for name, count in launches().items() if name.endswith("_backward")) == (8 if joins_mlp else 9) * STEPS
    assert eager[-20:].mean() < eager[:20].mean() - 0.3  # the model learns
    assert (fused - eager).abs().mean() <= MOST


# Dropout of low_rank draws PEFT's masks on a CPU, but drops less of the layer.
@pytest.mark.parametrize("recipe, dropout, prepared, most", [
    ("peft", 0.05, lambda model: model, MOST), ("low_rank", 0.05, lambda model: model, 2e-2), ("peft", 0.0, quantized, MOST),
    ("peft", 0.05, quantized, MOST)], ids=["dropout", "low_rank", "nf4", "nf4 dropout"])
def test_training_losses_of_recipes_match_eager_peft(device, recipe, dropout, prepared, most):
    eager = losses(1, device, torch.float32, dropout, prepared)
    with dorajit.patch_peft(strict=True, dropout=recipe) as patch:
        declined = patch.declined
        fused = losses(1, device, torch.float32, dropout, prepared)
        assert patch.declined == declined
    assert eager[-20:].mean() < eager[:20].mean() - 0.3  # the model learns
    assert (fused - eager).abs().mean() <= most
