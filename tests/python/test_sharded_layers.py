"""Layers with parameters sharded over several ranks, outside of forward passes; refused calls."""

import copy
import importlib.util
import os

import dorajit
import pytest
import ranks as processes
import sharded_models as models
import torch
from dorajit.operations import gain
from dorajit.distributed import gather
from reference import exact_norm
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

KINDS = {"linear": lambda: (dorajit.nn.DoRALinear(nn.Linear(20, 13), 3), (5, 20)),
         "conv": lambda: (dorajit.nn.DoRAConv2d(nn.Conv2d(4, 6, 3), 3), (2, 4, 7, 7)),
         "embedding": lambda: (dorajit.nn.DoRAEmbedding(nn.Embedding(31, 12), 3), None)}


def layer_and_input(kind, device):
    torch.manual_seed(3)
    layer, shape = KINDS[kind]()
    with torch.no_grad():
        for one in layer.parameters():
            one.add_(torch.randn_like(one) / 8)
    x = torch.arange(31) if shape is None else torch.randn(shape)
    return layer.to(device), x.to(device)


def assert_close(found, expected, step=2e-6):
    torch.testing.assert_close(found.double(), expected.double(), rtol=step, atol=step)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def fsdp1(module, device, **options):
    from torch.distributed.fsdp import FullyShardedDataParallel
    index = torch.distributed.get_rank() if device == "cuda" else None
    return FullyShardedDataParallel(module, device_id=torch.device(device, index), **options)


def _fully_sharded_layer_outside_of_forward(rank, device):
    for kind in KINDS:
        alone, x = layer_and_input(kind, device)
        layer = processes.fully_shard(copy.deepcopy(alone), device)
        norms, expected = layer.weight_norm(), exact_norm(*alone._factors(), alone.scaling)
        assert isinstance(norms, DTensor) and isinstance(layer.base_layer.weight, DTensor)
        assert_close(norms.full_tensor(), expected)
        assert_close(layer.gain().full_tensor(), alone.gain())
        before = layer.base_layer.weight.to_local().clone()
        layer.merge()
        alone.merge()
        assert isinstance(layer.base_layer.weight, DTensor)
        assert_close(layer.base_layer.weight.full_tensor(), alone.base_layer.weight)
        assert_close(layer(x).detach(), alone(x).detach(), 1e-5)
        with pytest.raises(ValueError, match=r"`base_layer.weight` is a copy.*reshard\(\)"):
            layer.unmerge()  # the outermost module keeps the parameters that it gathered for forward
        layer.reshard()
        layer.unmerge()
        assert torch.equal(layer.base_layer.weight.to_local(), before)
        with torch.no_grad():
            if rank == 0:
                layer.base_layer.weight.to_local()[:1].fill_(float("nan"))
        with pytest.raises(ValueError, match="not finite"):  # on the other rank as well
            layer.merge()


def _a_weight_that_changed_between_forward_passes(rank, device):
    alone, x = layer_and_input("linear", device)
    layer = processes.fully_shard(copy.deepcopy(alone), device)
    for _ in range(3):
        assert_close(layer(x).detach(), alone(x).detach(), 1e-5)
        layer.reshard()
        with torch.no_grad():
            for one in (layer, alone):
                one.base_layer.weight.mul_(3)


def _a_base_layer_that_is_its_own_unit(rank, device):
    for kind in KINDS:
        for engine in (processes.fully_shard, fsdp1):
            alone, x = layer_and_input(kind, device)
            layer = copy.deepcopy(alone)
            layer.base_layer = engine(layer.base_layer, device)
            seed = torch.randn_like(alone(x))
            assert_close(layer(x).detach(), alone(x).detach(), 1e-5)
            for one in (alone, layer):
                one(x).backward(seed)
            for name in ("lora_magnitude_vector", "lora_B", "lora_embedding_B"):
                if hasattr(alone, name):
                    found, expected = (getattr(one, name) for one in (layer, alone))
                    found, expected = (getattr(one, "weight", one).grad for one in (found, expected))
                    assert_close(found, expected, 1e-4)
            assert_close(whole(layer.gain()), alone.gain())


def _tensor_parallel_layer(rank, device):
    mesh = init_device_mesh(device, (2,))
    for placement in (Shard(0), Shard(1)):
        alone, x = layer_and_input("linear", device)
        layer = copy.deepcopy(alone)
        rows = placement == Shard(0)
        layouts = {"base_layer.weight": placement, "base_layer.bias": Shard(0) if rows else Replicate(),
                   "lora_A.weight": Replicate() if rows else Shard(1),
                   "lora_B.weight": Shard(0) if rows else Replicate(),
                   "lora_magnitude_vector": Shard(0) if rows else Replicate()}
        for name, layout in layouts.items():
            module, _, last = name.rpartition(".")
            module = layer.get_submodule(module)
            old = getattr(module, last)
            setattr(module, last, nn.Parameter(distribute_tensor(old.detach(), mesh, [layout]),
                                               requires_grad=old.requires_grad))
        spread = distribute_tensor(x, mesh, [Replicate() if rows else Shard(1)])
        out, expected = layer(spread), alone(x)
        assert_close(out.full_tensor().detach(), expected.detach(), 1e-5)
        out.full_tensor().square().sum().backward()
        expected.square().sum().backward()
        for name, one in alone.named_parameters():
            if one.requires_grad:
                assert_close(layer.get_parameter(name).grad.full_tensor(), one.grad, 1e-4)


def _magnitudes_elsewhere(rank, device):
    mesh = init_device_mesh(device, (2,))
    norms = torch.rand(7, device=device) + 1
    spread = distribute_tensor(norms, mesh, [Shard(0)])
    assert torch.equal(gain.gain(norms, spread), torch.ones_like(norms))
    for layout in (Shard(0), Replicate()):
        magnitude = distribute_tensor(norms.clone(), mesh, [layout])
        found = gain.gain(magnitude, spread)
        assert found.placements == (layout,) and torch.equal(found.full_tensor(), norms / norms)
    with pytest.raises(ValueError, match="`magnitude` is a DTensor over.* the weight is a plain"):
        gain.gain(spread, norms)
    with pytest.raises(ValueError, match="`magnitude` is on .* but the weight is on .*move both"):
        gain.gain(torch.ones(7, device="meta"), spread)


def _parameters_taken_apart_by_fsdp1(rank, device):
    from torch.distributed.fsdp import FullyShardedDataParallel
    for use_orig_params in (True, False):
        alone, x = layer_and_input("linear", device)
        alone.requires_grad_(True)
        layer = fsdp1(copy.deepcopy(alone), device, use_orig_params=use_orig_params)
        layer(x).sum().backward()  # the outermost module keeps gathered parameters until then
        inner = layer.module
        for call in (inner.weight_norm, inner.gain, inner.merge):
            with pytest.raises(ValueError, match="`.*weight`.*summon_full_params"):
                call()
        with FullyShardedDataParallel.summon_full_params(layer):
            assert_close(inner.weight_norm(), exact_norm(*alone._factors(), alone.scaling))
            assert_close(inner.gain(), alone.gain())
            inner.merge()
        alone.merge()
        assert_close(layer(x).detach(), alone(x).detach(), 1e-5)


def _new_adapters_of_sharded_layers(rank, device):
    with pytest.raises(ValueError, match="`base_layer` is a DTensor.*create the layer first"):
        dorajit.nn.DoRALinear(processes.fully_shard(nn.Linear(4, 4, device=device), device), 2)


def _gathering_leaves_whole_parameters_alone(rank, device):
    layer, _ = layer_and_input("linear", device)
    with gather.whole(layer, layer.lora_magnitude_vector):
        assert gather.constant(layer.base_layer, "bias") is layer.base_layer.bias
    assert gather.is_here(layer.base_layer.weight)


def _a_trained_bias_elsewhere(rank, device):
    base = processes.fully_shard(nn.Linear(4, 4, device=device), device)
    with pytest.raises(ValueError, match="`bias` is trained but sharded by itself"):
        gather.constant(base, "bias")
    base.bias.requires_grad_(False)
    assert gather.constant(base, "bias").shape == (4,)


def _each_small_case(rank, device):
    """In one start of the ranks, which takes longer than the cases; the error of a case names its function."""
    for case in (_tensor_parallel_layer, _magnitudes_elsewhere, _new_adapters_of_sharded_layers,
                 _gathering_leaves_whole_parameters_alone, _a_trained_bias_elsewhere):
        case(rank, device)


@pytest.mark.parametrize("body", [
    _fully_sharded_layer_outside_of_forward, _a_weight_that_changed_between_forward_passes,
    _a_base_layer_that_is_its_own_unit, _parameters_taken_apart_by_fsdp1, _each_small_case])
@processes.on(2)
def test_layers_with_sharded_parameters(body, ranks, device, tmp_path):
    processes.run(body, ranks, device, tmp_path)


def _two_dimensional_mesh(rank, device):
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh(device, (2, 2), mesh_dim_names=("data", "tensor"))
    for out in (24, 8):
        for placement in (Shard(0), Shard(1)):
            torch.manual_seed(3)
            alone = dorajit.nn.DoRALinear(nn.Linear(20, out, bias=False, device=device), 3)
            nn.init.normal_(alone.lora_B.weight)
            layer = copy.deepcopy(alone)
            for module, layout in ((layer.base_layer, placement),
                                   (layer.lora_A, Replicate() if placement == Shard(0) else Shard(1)),
                                   (layer.lora_B, Shard(0) if placement == Shard(0) else Replicate())):
                module.weight = nn.Parameter(distribute_tensor(
                    module.weight.detach(), mesh["tensor"], [layout]), requires_grad=False)
            fully_shard(layer.base_layer, mesh=mesh["data"])
            assert layer.base_layer.weight.device_mesh.ndim == 2  # _StridedShard(0) with Shard(0)
            assert_close(layer.weight_norm().full_tensor(), exact_norm(*alone._factors(), alone.scaling))
            fully_shard([layer.lora_A, layer.lora_B], mesh=mesh["data"])
            assert_close(layer.weight_norm().full_tensor(), exact_norm(*alone._factors(), alone.scaling))
    hybrid = fully_shard(dorajit.nn.DoRAEmbedding(nn.Embedding(31, 12, device=device), 3), mesh=mesh)
    assert_close(hybrid.weight_norm().full_tensor(), hybrid.lora_magnitude_vector.full_tensor())


@processes.on(4)
def test_layers_on_two_dimensional_meshes_match_one_process(ranks, device, tmp_path):
    processes.run(_two_dimensional_mesh, ranks, device, tmp_path)


# --- DeepSpeed ------------------------------------------------------------------------------------

def _zero_outside_of_forward(rank, device):
    import deepspeed
    alone = models.model("nn", device)
    engine = models.zero_engine(models.model("nn", device), 3)
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
    with models.zero_gathered(operands[:1]):
        with pytest.raises(ValueError, match="`lora_A` is a parameter of DeepSpeed ZeRO-3"):
            dorajit.weight_norm(*operands, layer.scaling)
    with models.zero_gathered(operands):
        models.assert_close(dorajit.weight_norm(*operands, layer.scaling), whole.weight_norm())
    with models.zero_gathered(layer.parameters(), modifier_rank=0):
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


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed: pip install deepspeed")
@processes.on(2)
def test_norms_outside_of_forward_gather_or_raise_under_zero(ranks, device, tmp_path):
    processes.run(_zero_outside_of_forward, ranks, device, tmp_path, DS_ACCELERATOR=device)
