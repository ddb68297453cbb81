"""Layers use the present weights after any kind of write, whether it changes the version or not: norms are not cached
between forward passes, and the keys of weights in other places change with them."""

import contextlib
import copy

import dorajit
import pytest
import torch
from dorajit.norms.frozen import key_of
from linear_layers import layer_and_input
from reference import needs_gpu
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.checkpoint import checkpoint

RANKS = [4, 24]  # the kernel; PyTorch's products in float32


def _flat(layer, new):
    """All weights become views of one buffer, as in an optimizer with sharded states; then the buffer is written."""
    parameters = [one for one in layer.parameters() if one.dim() > 1]
    flat = parameters_to_vector(parameters).detach().clone()
    start = 0
    for one in parameters:
        one.data = flat[start:start + one.numel()].view_as(one)
        start += one.numel()
    yield
    flat.copy_(torch.cat([new[one].flatten() for one in parameters]))


def _each(write):
    """A function that writes one weight after another."""
    def way(layer, new):
        yield
        for one in layer.parameters():
            if one.dim() > 1:
                write(one, new[one])
    return way


def _vector(layer, new):
    yield
    vector_to_parameters(torch.cat([new.get(one, one.detach()).flatten() for one in layer.parameters()]),
                         layer.parameters())


def _loaded(assign):
    def way(layer, new):
        yield
        states = {name: new.get(one, one.detach()).clone() for name, one in layer.named_parameters()}
        layer.load_state_dict(states, assign=assign)
    return way


def _foreach(layer, new):
    yield
    torch._foreach_copy_([one.data for one in new], list(new.values()))


def _alias(layer, new):
    """Writes a tensor that was assigned to .data, as diffusers' EMA does when it restores."""
    kept = {one: one.detach().clone() for one in new}
    for one, alias in kept.items():
        one.data = alias
    yield
    for one, alias in kept.items():
        alias.copy_(new[one])


def _fused(layer, new):
    """Fused optimizers do not increment versions."""
    trained = [one.requires_grad_() for one in new]
    yield
    for one in trained:
        one.grad = one.detach() - new[one]
    torch.optim.SGD(trained, lr=1.0, fused=True).step()


@torch.no_grad()
def _swap(one, new):
    torch.utils.swap_tensors(one, nn.Parameter(new.clone(), requires_grad=one.requires_grad))


def _numpy(one, new):
    one.detach().cpu().numpy()[...] = new.cpu().numpy()


@torch.no_grad()
def _set(one, new):
    one.set_(new.clone())


@torch.no_grad()
def _in_place(one, new):
    one.copy_(new)


WAYS = {
    "copy_ without a graph": _each(_in_place),
    "data.copy_": _each(lambda one, new: one.data.copy_(new)),
    "in-place arithmetic on data": _each(lambda one, new: one.data.mul_(0).add_(new)),
    "other data": _each(lambda one, new: setattr(one, "data", new.clone())),
    "an alias that was assigned to data": _alias,
    "detach().copy_": _each(lambda one, new: one.detach().copy_(new)),
    "set_": _each(_set),
    "swap_tensors": _each(_swap),
    "numpy": _each(_numpy),
    "dlpack": _each(lambda one, new: torch.from_dlpack(one.detach()).copy_(new)),
    "vector_to_parameters": _vector,
    "load_state_dict": _loaded(False),
    "load_state_dict with assign": _loaded(True),
    "_foreach_copy_ of data": _foreach,
    "a flat buffer": _flat,
    "a fused optimizer": _fused,
}


def layer_of(kind, rank, device):
    if kind != "peft":
        return layer_and_input(kind, device, rank=rank)
    peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")
    return peft.get_peft_model(nn.Sequential(nn.Linear(32, 40, device=device)), peft.LoraConfig(
        use_dora=True, r=rank, target_modules=["0"], init_lora_weights=False)), torch.randn(5, 32, device=device)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("kind", ["linear", "conv2d", "embedding", "peft"])
@pytest.mark.parametrize("way", WAYS)
def test_output_after_a_write_equals_that_of_a_fresh_layer(device, way, kind, rank):
    if way == "numpy" and device != "cpu":
        pytest.skip("NumPy has no view of a GPU's memory")
    layer, x = layer_of(kind, rank, device)
    new = {one: torch.randn_like(one).mul_(0.2) for one in layer.parameters() if one.dim() > 1}
    values = [new.get(one, one.detach()).clone() for one in layer.parameters()]
    fresh = copy.deepcopy(layer)
    for one, value in zip(fresh.parameters(), values):
        one.data.copy_(value)
    expected = fresh(x).detach()  # computed by PEFT if the layer is PEFT's
    with dorajit.patch_peft() if kind == "peft" else contextlib.nullcontext():
        write = WAYS[way](layer, new)
        next(write)
        for _ in range(2):
            before = layer(x).detach()
        next(write, None)
        assert not torch.allclose(before, expected)
        for forward in layer, lambda x: checkpoint(layer, x, use_reentrant=False):
            step = 1e-5 if kind == "peft" else 1.3e-6
            torch.testing.assert_close(forward(x).detach(), expected, rtol=step, atol=1e-5)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("kind", ["linear", "conv2d", "embedding"])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_8_bit_optimizer_step_between_passes_recomputes_norms(device, kind, rank, is_checkpointed):
    optimizers = pytest.importorskip("bitsandbytes").optim
    layer, x = layer_of(kind, rank, device)
    for name, one in layer.named_parameters():
        if one.dim() > 1 and "lora_" in name:
            nn.init.normal_(one)
    trained = [one for one in layer.parameters() if one.requires_grad]
    versions = [one._version for one in trained]
    optimizer = optimizers.Adam8bit(trained, lr=0.1, min_8bit_size=1)
    for _ in range(3):
        before = [one.detach().clone() for one in trained]
        expected = copy.deepcopy(layer)(x).detach()
        out = checkpoint(layer, x, use_reentrant=False) if is_checkpointed else layer(x)
        assert torch.equal(out, expected)
        out.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert not any(map(torch.equal, trained, before))
    assert [one._version for one in trained] == versions  # the write did not change versions
    assert any(one.dtype is torch.uint8 for state in optimizer.state.values() for one in state.values()
               if torch.is_tensor(one))


# --- keys ----------------------------------------------------------------------------------------

CHANGES = {
    "a counted write": lambda one: one.detach().add_(1),
    "a write through a view": lambda one: one.detach()[1:].mul_(2),
    "other memory": lambda one: setattr(one, "data", one.detach().clone()),
    "other strides": lambda one: setattr(one, "data", one.detach().t()),
    "another shape": lambda one: setattr(one, "data", one.detach()[:4]),
    "another type": lambda one: setattr(one, "data", one.detach().view(torch.int32)),
}


def frozen(one):
    return torch.nn.Parameter(one, requires_grad=False)


def weights(device, wraps=frozen):
    return [wraps(torch.randn(6, 6, device=device)) for _ in range(3)]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_weight_changes_the_key(device, change, place):
    of = weights(device)
    before = key_of(of, 0.5)
    assert before is not None and key_of(of, 0.5) == before
    change(of[place])
    assert key_of(of, 0.5) != before


def test_changed_scale_or_order_changes_the_key(device):
    of = weights(device)
    assert key_of(of, 0.5) != key_of(of, 0.25)
    assert key_of(of, 0.5) != key_of(of[::-1], 0.5)


class Own(torch.nn.Parameter):
    """A subclass without a dispatch of its own."""


@pytest.mark.parametrize("wraps", [lambda one: one.to(torch.uint8), lambda one: one.to(torch.int8), Own])
def test_weights_of_any_type_have_a_key(device, wraps):
    of = weights(device, wraps=wraps)
    before = key_of(of, 0.5)
    assert before is not None and key_of(of, 0.5) == before
    with torch.no_grad():
        of[2].add_(1)
    assert key_of(of, 0.5) != before


def test_tensors_without_version_have_no_key(device):
    with torch.inference_mode():
        of = weights(device, wraps=torch.clone)
    assert key_of(of, 0.5) is None


@needs_gpu
def test_streams_have_different_keys_and_captures_have_none():
    of = weights("cuda")
    before = key_of(of, 0.5)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert key_of(of, 0.5) != before
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        assert key_of(of, 0.5) is None
