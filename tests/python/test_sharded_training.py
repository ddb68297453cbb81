"""Training with DDP, FSDP1, FSDP2 and DeepSpeed ZeRO in several processes matches training in one process."""

import contextlib
import functools
import importlib.util

import dorajit
import pytest
import ranks as processes
import sharded_models as models
import torch
from dorajit import testing
from dorajit.layers import explain
from torch import nn

FAMILIES = ["nn", pytest.param("peft", marks=pytest.mark.skipif(
    importlib.util.find_spec("peft") is None, reason="PEFT is not installed: pip install peft transformers"))]
needs_deepspeed = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None,
                                     reason="DeepSpeed is not installed: pip install deepspeed")


class Engine:
    """A way of spreading a model over ranks.

    Attributes:
        made: the model that is trained.
        takes_tokens: whether PEFT's embeddings, whose factors are parameters of the module itself, can
            be spread.
    """

    takes_tokens = True

    def __init__(self, made, device):
        self.made = made
        self.optimizer = torch.optim.SGD(models.trainable(made).values(), lr=0.05)

    def step(self, loss):
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def enlarge(self):
        models.enlarge(one for one in self.made.parameters() if not one.requires_grad)

    def trained(self):
        """Name in one process -> whole trained parameter."""
        return models.trainable(self.made)


class DDP(Engine):
    def __init__(self, made, device):
        super().__init__(nn.parallel.DistributedDataParallel(made), device)

    def trained(self):
        return models.trainable(self.made.module)


class FSDP1(Engine):
    use_orig_params = True

    def __init__(self, made, device):
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy
        policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=self._is_unit)
        super().__init__(FullyShardedDataParallel(
            made, auto_wrap_policy=policy, use_orig_params=self.use_orig_params,
            device_id=torch.device(device, torch.distributed.get_rank() if device == "cuda" else None)),
            device)

    def _is_unit(self, module):
        return isinstance(module, models.Block)

    def _whole(self):
        from torch.distributed.fsdp import FullyShardedDataParallel
        return FullyShardedDataParallel.summon_full_params(self.made, writeback=True)

    def enlarge(self):
        with self._whole():
            frozen = [one for one in self.made.parameters() if not one.requires_grad]
            models.enlarge(frozen)

    def trained(self):
        with self._whole():
            return {name.replace("_fsdp_wrapped_module.", ""): one.detach().clone()
                    for name, one in models.trainable(self.made).items()}


class FSDP1Leaves(FSDP1):
    """Each unit is either frozen or trained, as flat parameters and PEFT's policy require."""

    use_orig_params, takes_tokens = False, False

    def _is_unit(self, module):
        return not list(module.children()) and hasattr(module, "weight")


class FSDP2(Engine):
    leaves = False

    def __init__(self, made, device):
        for module in [*made.modules()][::-1]:
            if isinstance(module, (nn.Linear, nn.Embedding) if self.leaves else models.Block):
                processes.fully_shard(module, device)
        processes.fully_shard(made, device)
        super().__init__(made, device)

    def trained(self):
        return {name: one.full_tensor() for name, one in models.trainable(self.made).items()}


class FSDP2Leaves(FSDP2):
    leaves = True


class ZeRO2(Engine):
    stage = 2

    def __init__(self, made, device):
        self.made = models.zero_engine(made, self.stage)

    def step(self, loss):
        self.made.backward(loss)
        self.made.step()

    def enlarge(self):
        frozen = [one for one in self.made.module.parameters() if not one.requires_grad]
        with models.zero_gathered(frozen, modifier_rank=0):
            models.enlarge(frozen)

    def trained(self):
        found = models.trainable(self.made.module)
        with models.zero_gathered(found.values()):
            return {name: one.detach().clone() for name, one in found.items()}


class ZeRO3(ZeRO2):
    stage = 3


def _train(device, engine, family, checkpointed, dropout):
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    patch = dorajit.patch_peft(strict=True) if family == "peft" else contextlib.nullcontext()
    with patch:
        tokens = engine.takes_tokens or family == "nn"
        expected, trained = models.alone(models.model(family, device, False, dropout, tokens=tokens), device, ranks)
        spread = engine(models.model(family, device, checkpointed, dropout, tokens=tokens), device)
        given, before = models.inputs(ranks, device), testing.launch_counts()
        for step in range(models.STEPS):
            if step == models.STEPS - 1:
                spread.enlarge()
            torch.manual_seed(100 * step + rank)
            out = spread.made(given[step][rank])
            models.assert_close(out.detach(), expected[step][rank])
            spread.step(out.square().mean())
        after = testing.launch_counts()
        composed = sum(after[op] - before[op] for op in ("compose_inner", "compose_residual", "compose_low_rank"))
        assert composed == models.STEPS * (tokens + 4 + 4 * checkpointed), "some layers did not run natively"
        assert not explain.declined
        found = spread.trained()
        assert found.keys() == trained.keys()
        for name, one in trained.items():
            models.assert_close(found[name], one)


def _train_each_way(rank, device, engine, family):
    """In one start of the ranks, which takes longer than training."""
    checkpointed = engine in (FSDP1Leaves, FSDP2Leaves)
    for options in ((False, 0.0), (True, 0.0), (checkpointed, 0.5)):
        _train(device, engine, family, *options)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", [DDP, FSDP1, FSDP1Leaves, FSDP2, FSDP2Leaves,
                                    *(pytest.param(one, marks=needs_deepspeed) for one in (ZeRO2, ZeRO3))])
@processes.on(2)
def test_sharded_training_matches_one_process(engine, family, ranks, device, tmp_path):
    """Without options, with gradient checkpointing, and with dropout."""
    processes.run(_train_each_way, ranks, device, tmp_path, engine, family, DS_ACCELERATOR=device)
