"""Training with DeepSpeed ZeRO-2 and ZeRO-3 in several processes matches training in one process."""

import contextlib
import importlib.util
import os

import dorajit
import pytest
import ranks as processes
import sharded_models as models
import torch
from dorajit import testing
from dorajit.layers import explain

pytestmark = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None,
                                reason="DeepSpeed is not installed: pip install deepspeed")
FAMILIES = ["nn", "peft"] if importlib.util.find_spec("peft") else ["nn"]


def _engine(made, stage, **settings):
    import deepspeed
    engine, *_ = deepspeed.initialize(
        model=made, model_parameters=list(models.trainable(made).values()), dist_init_required=False,
        config={"train_micro_batch_size_per_gpu": 2,
                "optimizer": {"type": "SGD", "params": {"lr": 0.05}},
                "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0,
                                      **settings},
                "gradient_clipping": 0.0,  # the default is 1
                "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False})
    return engine


def _gathered(parameters, modifier_rank=None):
    import deepspeed
    return deepspeed.zero.GatheredParameters(list(parameters), modifier_rank=modifier_rank)


def _train(rank, device, stage, family, checkpointed, dropout):
    ranks = torch.distributed.get_world_size()
    patch = dorajit.patch_peft(strict=True) if family == "peft" else contextlib.nullcontext()
    with patch:
        expected, trained = models.alone(models.model(family, device, dropout=dropout), device, ranks)
        engine = _engine(models.model(family, device, checkpointed, dropout), stage)
        given, before = models.inputs(ranks, device), testing.launch_counts()
        for step in range(models.STEPS):
            if step == models.STEPS - 1:
                frozen = [one for one in engine.module.parameters() if not one.requires_grad]
                with _gathered(frozen, modifier_rank=0):
                    models.enlarge(frozen)
            torch.manual_seed(100 * step + rank)
            out = engine(given[step][rank])
            models.assert_close(out.detach(), expected[step][rank])
            engine.backward(out.square().mean())
            engine.step()
        after = testing.launch_counts()
        composed = sum(after[op] - before[op] for op in ("compose_inner", "compose_residual", "compose_low_rank"))
        assert composed == models.STEPS * (5 + 4 * checkpointed), "some layers did not run natively"
        assert not explain.declined
        found = models.trainable(engine.module)
        assert found.keys() == trained.keys()
        with _gathered(found.values()):
            for name, one in trained.items():
                models.assert_close(found[name].detach(), one)


def _train_each_way(rank, device, stage, family):
    for checkpointed, dropout in ((False, 0.0), (True, 0.0), (False, 0.5)):
        _train(rank, device, stage, family, checkpointed, dropout)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stage", [2, 3])
@processes.on(2)
def test_training_with_zero_matches_one_process(stage, family, ranks, device, tmp_path):
    """Without options, with gradient checkpointing, and with dropout."""
    processes.run(_train_each_way, ranks, device, tmp_path, stage, family, DS_ACCELERATOR=device)


def _outside_of_forward(rank, device):
    import deepspeed
    alone = models.model("nn", device)
    engine = _engine(models.model("nn", device), 3)
    layer, whole = engine.module.blocks[0].up, alone.blocks[0].up
    models.assert_close(layer.weight_norm(), whole.weight_norm())  # weight_norm gathers the parameters
    models.assert_close(layer.gain().detach(), whole.gain().detach())
    assert layer.base_layer.weight.ds_status.name == "NOT_AVAILABLE"  # and releases them
    operands = layer.base_layer.weight, layer.lora_A.weight, layer.lora_B.weight
    with pytest.raises(ValueError, match="`weight` is a parameter of DeepSpeed ZeRO-3.*"
                                         "NOT_AVAILABLE.*GatheredParameters"):
        dorajit.weight_norm(*operands, layer.scaling)
    with pytest.raises(ValueError, match="`base_layer.weight` is a parameter of DeepSpeed ZeRO-3"):
        layer.merge()
    with _gathered(operands[:1]):
        with pytest.raises(ValueError, match="`lora_A` is a parameter of DeepSpeed ZeRO-3"):
            dorajit.weight_norm(*operands, layer.scaling)
    with _gathered(operands):
        models.assert_close(dorajit.weight_norm(*operands, layer.scaling), whole.weight_norm())
    with _gathered(layer.parameters(), modifier_rank=0):
        layer.merge()
    whole.merge()
    x = torch.randn(3, 20, device=device)
    models.assert_close(engine.module.blocks[0].up(x).detach(), whole(x).detach())

    class Partly(deepspeed.zero.GatheredParameters):
        def __init__(self, parameters):
            super().__init__(parameters[:1])  # of base_layer.weight, base_layer.bias and others
    layer, whole = engine.module.blocks[1].up, alone.blocks[1].up
    complete, deepspeed.zero.GatheredParameters = deepspeed.zero.GatheredParameters, Partly
    with pytest.raises(ValueError, match="parameters were not gathered.*ALLOW_PARTIAL_GATHER=1"):
        layer.weight_norm()
    os.environ["PEFT_DORA_ALLOW_PARTIAL_GATHER"] = "1"
    dorajit.invalidate_environment()
    with pytest.raises(ValueError, match="argument `.*` is a parameter of DeepSpeed ZeRO-3"):
        layer.weight_norm()  # reading a parameter that is not gathered raises
    Partly.__init__ = lambda self, parameters: complete.__init__(
        self, [one for one in parameters if one is not layer.base_layer.bias])
    models.assert_close(layer.weight_norm(), whole.weight_norm())


@processes.on(2)
def test_norms_outside_of_forward_gather_or_raise(ranks, device, tmp_path):
    processes.run(_outside_of_forward, ranks, device, tmp_path, DS_ACCELERATOR=device)
