"""The base result of a dropped-out input, computed in slices: budget, gradients, memory."""

import contextlib

import dorajit
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from dorajit.layers import dropout as dropped
from dorajit import control
from dorajit.operations import eligibility
from torch.utils._python_dispatch import TorchDispatchMode

ROWS, IN, OUT, SCALE = 6, 10, 130, 0.75  # slices of 64, 64 and 2 columns


@pytest.fixture
def sliced(monkeypatch):
    """A budget that gives slices of 64 columns for any type."""
    monkeypatch.setattr(control, "get_dora_forward_threshold_bytes", lambda: 64 * ROWS * 2)


def operands(device, dtype=torch.float64, turned=False, grads=(True, True, True)):
    weight = torch.randn(IN, OUT, device=device).T if turned else torch.randn(OUT, IN, device=device)
    gain_dtype = dtype if dtype == torch.float64 else torch.float32
    given = (torch.randn(2, ROWS // 2, IN, device=device).to(dtype),
             torch.randn(2, ROWS // 2, OUT, device=device).to(dtype),
             (1 + torch.randn(OUT, device=device) / 8).to(gain_dtype))
    x, lora, gain = (one.requires_grad_(wanted) for one, wanted in zip(given, grads))
    return x, weight.to(dtype), lora, gain


def formula(x, weight, lora, gain):
    """The formula in PyTorch, with PyTorch's graph."""
    x, weight, lora, gain = (one.double() for one in (x, weight, lora, gain))
    return (gain - 1) * F.linear(x, weight) + gain * SCALE * lora


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_sliced_dropout_passes_gradcheck(device, sliced, layer_launches, turned, fused):
    x, weight, lora, gain = operands(device, turned=turned)
    def slow(*given):
        return dropped.delta(given[0], weight, given[1], given[2], SCALE)
    with contextlib.nullcontext() if fused else dorajit.disabled():
        assert torch.autograd.gradcheck(slow, (x, lora, gain), fast_mode=True)
    counts = layer_launches()
    assert counts["backward"] % 3 == 0 if fused else counts == {}


@pytest.mark.parametrize("dtype, step", [(torch.float64, 1e-12), (torch.float32, 1e-5),
                                         (torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
@pytest.mark.parametrize("grads", [(True, True, True), (False, True, True), (True, False, True),
                                   (True, True, False), (False, False, True)])
@pytest.mark.parametrize("fused", [True, False])
def test_sliced_dropout_matches_float64(device, sliced, layer_launches, dtype, step, grads, fused):
    given = operands(device, dtype, grads=grads)
    wanted = [one for one in given if one.requires_grad]
    layer_launches()
    with contextlib.nullcontext() if fused else dorajit.disabled():
        out = dropped.delta(*given, SCALE)
        assert layer_launches() == ({"compose_inner" if grads[2] else "compose": 3} if fused else {})
        expected = formula(*given)
        seed = torch.randn_like(out)
        found = torch.autograd.grad(out, wanted, seed)
        assert layer_launches() == ({"backward": 3} if fused else {})
    exact = torch.autograd.grad(expected, wanted, seed.double())
    assert out.dtype == dtype
    for one, other in zip((out, *found), (expected, *exact)):
        scale = other.abs().max().item()
        torch.testing.assert_close(one.double(), other.double(), rtol=step, atol=step * scale)


def test_sliced_dropout_without_graph_matches_float64(device, sliced, layer_launches):
    given = operands(device, torch.float32)
    with torch.no_grad():
        out = dropped.delta(*given, SCALE)
    assert layer_launches() == {"compose": 3}
    torch.testing.assert_close(out.double(), formula(*given), rtol=1e-5, atol=1e-5)


def test_sliced_dropout_second_gradients_raise(device, sliced):
    """An error is raised instead of returning wrong gradients."""
    x, weight, lora, gain = operands(device)
    out = dropped.delta(x, weight, lora, gain, SCALE)
    with pytest.raises(RuntimeError, match="set_dora_forward_threshold_mb"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


def test_sliced_dropout_of_transposed_input_matches_float64(device, sliced):
    """As after a transpose between batch-first and sequence-first."""
    given = operands(device)
    x = given[0].detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    out = dropped.delta(x, *given[1:], SCALE)
    expected = formula(x, *given[1:])
    torch.testing.assert_close(torch.autograd.grad(out.sum(), (x, *given[2:])),
                               torch.autograd.grad(expected.sum(), (x, *given[2:])))


@pytest.mark.parametrize("dtype, step", [(torch.float64, 1e-12), (torch.float32, 0.1)])
def test_sliced_dropout_under_autocast_does_not_cast_float64(device, sliced, layer_launches, dtype, step):
    given = operands(device, dtype)
    with torch.autocast(device, torch.bfloat16):
        out = dropped.delta(*given, SCALE)
    assert layer_launches() == {"compose_inner": 3}
    torch.testing.assert_close(out.double(), formula(*given), rtol=step, atol=step)
    assert torch.allclose(out.double(), formula(*given), rtol=1e-5, atol=1e-5) == (step < 0.1)


def test_sliced_dropout_compiles_before_the_budget_is_read(device, fresh_compiler):
    layer = dorajit.nn.DoRALinear.from_linear(torch.nn.Linear(8, 16, device=device), 4, dropout=0.5)
    dorajit.invalidate_environment()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    compiled(torch.randn(3, 8, device=device)).sum().backward()
    assert layer.lora_magnitude_vector.grad is not None


class Products(TorchDispatchMode):
    """Records the bytes of the largest result of a matrix product."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            self.largest = max(self.largest, out.numel() * out.element_size())
        return out


@pytest.mark.parametrize("rows, out", [(64, 8192), (512, 1000), (5, 70)])
def test_slices_stay_within_the_budget(device, monkeypatch, rows, out):
    budget = max(rows * out // 3, 64 * rows) * 4
    monkeypatch.setattr(control, "get_dora_forward_threshold_bytes", lambda: budget)
    monkeypatch.setattr(eligibility, "is_observed", lambda: False)  # ignore the mode that counts bytes
    x = torch.randn(rows, 8, device=device, requires_grad=True)
    lora = torch.randn(rows, out, device=device, requires_grad=True)
    with Products() as products:
        dropped.delta(x, torch.randn(out, 8, device=device), lora, torch.ones(out, device=device),
                      SCALE).sum().backward()
    assert 0 < products.largest <= budget


def test_sliced_dropout_backward_propagates_tangents(device, sliced):
    x, weight, lora, gain = given = operands(device)
    out = dropped.delta(*given, SCALE)
    assert "Sliced" in out.grad_fn.name()
    d_out, tangent, found = torch.randn_like(out), torch.randn_like(out), []
    for one in (out, formula(*given)):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(d_out, tangent)
            found.append([forward_ad.unpack_dual(each).tangent for each in torch.autograd.grad(one, (x, lora, gain), dual)])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
