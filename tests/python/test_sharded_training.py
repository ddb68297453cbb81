"""Training with DDP, FSDP1, FSDP2 in several processes matches training in one process."""

import contextlib
import functools

import dorajit
import pytest
import ranks as processes
import sharded_models as models
import torch
from dorajit import testing
from dorajit.layers import explain
from torch import nn

HAS_PEFT = bool(processes._optional("peft"))
FAMILIES = ["nn", pytest.param("peft", marks=pytest.mark.skipif(
    not HAS_PEFT, reason="PEFT is not installed: pip install peft transformers"))]


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


def _train(rank, device, engine, family, checkpointed, dropout):
    ranks = torch.distributed.get_world_size()
    patch = dorajit.patch_peft(strict=True) if family == "peft" else contextlib.nullcontext()
    with patch:
        tokens = engine.takes_tokens or family == "nn"
        expected, trained = models.alone(models.model(family, device, False, dropout, tokens=tokens), device, ranks)
        spread = engine(models.model(family, device, checkpointed, dropout, tokens=tokens), device)
        optimizer = torch.optim.SGD(models.trainable(spread.made).values(), lr=0.05)
        given, before = models.inputs(ranks, device), testing.launch_counts()
        for step in range(models.STEPS):
            if step == models.STEPS - 1:
                spread.enlarge()
            torch.manual_seed(100 * step + rank)
            out = spread.made(given[step][rank])
            models.assert_close(out.detach(), expected[step][rank])
            out.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        after = testing.launch_counts()
        composed = sum(after[op] - before[op] for op in ("compose_inner", "compose_residual", "compose_low_rank"))
        assert composed == models.STEPS * (tokens + 4 + 4 * checkpointed), "some layers did not run natively"
        assert not explain.declined
        found = spread.trained()
        assert found.keys() == trained.keys()
        for name, one in trained.items():
            models.assert_close(found[name], one)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointed", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("engine", [DDP, FSDP1, FSDP1Leaves, FSDP2, FSDP2Leaves])
@processes.on(2)
def test_sharded_training_matches_one_process(engine, family, checkpointed, ranks, device, tmp_path):
    processes.run(_train, ranks, device, tmp_path, engine, family, checkpointed, 0.0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", [FSDP1, FSDP1Leaves, FSDP2Leaves])
@processes.on(2)
def test_sharded_training_with_dropout_matches_one_process(engine, family, ranks, device, tmp_path):
    processes.run(_train, ranks, device, tmp_path, engine, family, engine is not FSDP1, 0.5)
