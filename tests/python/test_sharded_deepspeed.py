"""Training with DeepSpeed ZeRO-2 and ZeRO-3 in several processes gives what one process gives."""

import contextlib
import importlib.util

import dorajit
import pytest
import ranks as processes
import sharded_models as models
import torch
from dorajit import testing
from dorajit.peft import declined

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
                "gradient_clipping": 0.0,  # 1 unless set
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
        assert after["compose_inner"] - before["compose_inner"] == models.STEPS * (
            5 + 4 * checkpointed), "some layers did not run natively"
        assert not declined.reasons
        found = models.trainable(engine.module)
        assert found.keys() == trained.keys()
        with _gathered(found.values()):
            for name, one in trained.items():
                models.assert_close(found[name].detach(), one)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointed", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("stage", [2, 3])
@processes.on(2)
def test_a_training_step_is_that_of_one_process(stage, family, checkpointed, ranks, device, tmp_path):
    processes.run(_train, ranks, device, tmp_path, stage, family, checkpointed, 0.0,
                  DS_ACCELERATOR=device)


@pytest.mark.parametrize("family", FAMILIES)
@processes.on(2)
def test_dropout_over_partitioned_weights(family, ranks, device, tmp_path):
    processes.run(_train, ranks, device, tmp_path, 3, family, False, 0.5, DS_ACCELERATOR=device)
