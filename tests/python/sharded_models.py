"""Small models with DoRA, for training by a framework and by one process."""

import dorajit
import torch
from reference import perturb
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS = 3


class Block(nn.Module):
    """Two layers, with gradient checkpointing if `checkpointed` is set."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(20, 27), nn.Linear(27, 20)
        self.checkpointed = False

    def _run(self, x):
        return x + self.down(torch.relu(self.up(x)))

    def forward(self, x):
        return checkpoint(self._run, x, use_reentrant=False) if self.checkpointed else self._run(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(30, 20)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return x


def model(family, device, checkpointed=False, dropout=0.0, dtype=torch.float32, tokens=True):
    """A model with equal parameters on every rank and in every call, with layers of dorajit.nn or of PEFT ("peft").

    Args:
        tokens: whether the embedding has an adapter, too.
    """
    torch.manual_seed(3)
    made = Model().to(device, dtype)
    for block in made.blocks:
        block.checkpointed = checkpointed
    if family == "peft":
        from peft import LoraConfig, get_peft_model
        made = get_peft_model(made, LoraConfig(
            use_dora=True, target_modules=["up", "down"] + ["tokens"] * tokens, r=4, lora_alpha=8,
            lora_dropout=dropout))
    else:
        made.requires_grad_(False)
        if tokens:
            made.tokens = dorajit.nn.DoRAEmbedding(made.tokens, 4, 8)
        for block in made.blocks:
            for name in ("up", "down"):
                layer = dorajit.nn.DoRALinear(getattr(block, name), 4, 8, dropout=dropout)
                setattr(block, name, layer)
    return perturb(made)


def inputs(ranks, device):
    return torch.randint(30, (STEPS, ranks, 2, 5), generator=torch.Generator().manual_seed(7)).to(device)


def trainable(made):
    return {name: one for name, one in made.named_parameters() if one.requires_grad}


def alone(made, device, ranks):
    """Trains in one process: (outputs[step][rank], trained parameters at the end).

    Before the last step all frozen parameters are scaled by 1.5.
    """
    given, outputs = inputs(ranks, device), []
    optimizer = torch.optim.SGD(trainable(made).values(), lr=0.05)
    for step in range(STEPS):
        outputs.append([])
        if step == STEPS - 1:
            enlarge(one for one in made.parameters() if not one.requires_grad)
        for rank in range(ranks):
            torch.manual_seed(100 * step + rank)
            out = made(given[step][rank])
            outputs[-1].append(out.detach())
            (out.square().mean() / ranks).backward()
        optimizer.step()
        optimizer.zero_grad()
    return outputs, {name: one.detach() for name, one in trainable(made).items()}


@torch.no_grad()
def enlarge(parameters):
    for one in parameters:
        one.mul_(1.5)


def assert_close(found, expected, step=2e-5):
    torch.testing.assert_close(found, expected, rtol=step, atol=step)


def zero_engine(made, stage):
    """The model under DeepSpeed ZeRO."""
    import deepspeed
    made, *_ = deepspeed.initialize(
        model=made, model_parameters=list(trainable(made).values()), dist_init_required=False,
        config={"train_micro_batch_size_per_gpu": 2,
                "optimizer": {"type": "SGD", "params": {"lr": 0.05}},
                "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
                "gradient_clipping": 0.0,  # the default is 1
                "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False})
    return made


def zero_gathered(parameters, modifier_rank=None):
    import deepspeed
    return deepspeed.zero.GatheredParameters(list(parameters), modifier_rank=modifier_rank)
