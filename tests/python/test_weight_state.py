"""dorajit.norms.weight_state: keys that change when weights change."""

import pytest
import torch
from dorajit.norms import weight_state

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
    before = weight_state.key(of, 0.5)
    assert before is not None and weight_state.key(of, 0.5) == before
    change(of[place])
    assert weight_state.key(of, 0.5) != before


def test_changed_scale_or_order_changes_the_key(device):
    of = weights(device)
    assert weight_state.key(of, 0.5) != weight_state.key(of, 0.25)
    assert weight_state.key(of, 0.5) != weight_state.key(of[::-1], 0.5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_weights_of_any_type_have_a_key(device, dtype):
    of = weights(device, wraps=lambda one: one.to(dtype))
    before = weight_state.key(of, 0.5)
    assert before is not None and weight_state.key(of, 0.5) == before
    of[1].add_(1)
    assert weight_state.key(of, 0.5) != before


def test_subclasses_without_own_dispatch_have_a_key(device):
    class Own(torch.nn.Parameter):
        pass
    of = weights(device, wraps=Own)
    before = weight_state.key(of, 0.5)
    assert before is not None
    with torch.no_grad():
        of[2].zero_()
    assert weight_state.key(of, 0.5) != before


def test_tensors_without_version_have_no_key(device):
    with torch.inference_mode():
        of = weights(device, wraps=torch.clone)
    assert weight_state.key(of, 0.5) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_streams_have_different_keys_and_captures_have_none():
    of = weights("cuda")
    before = weight_state.key(of, 0.5)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert weight_state.key(of, 0.5) != before
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        assert weight_state.key(of, 0.5) is None
