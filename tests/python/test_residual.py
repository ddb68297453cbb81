"""fused_dora_compose_residual: a layer's result in one pass, and its gradients in one pass."""

import itertools

import pytest
import torch

import dorajit

SCALE = 0.7
MIXES = [(torch.float32,) * 3, (torch.bfloat16, torch.bfloat16, torch.float32),
         (torch.float16,) * 3, (torch.float64,) * 3, (torch.float32, torch.bfloat16, torch.float32),
         (torch.bfloat16, torch.float32, torch.bfloat16)]


def operands(device, mix=MIXES[0], shape=(3, 5, 24), gain_shape=None, biased=True):
    """lora, result, gain, and a bias or None."""
    lora, result = (torch.randn(shape, device=device).to(dtype) for dtype in mix[:2])
    gain = (1 + 0.2 * torch.randn(gain_shape or shape[-1:], device=device)).to(mix[2])
    bias = torch.randn(gain.shape, device=device).to(mix[1]) if biased else None
    return lora, result, gain, bias


def plain(lora, result, gain, bias, scale=SCALE):
    """The formula in float64."""
    lora, result, gain = (one.double() for one in (lora, result, gain))
    base = result if bias is None else result - bias.double()
    return result + ((gain - 1) * base + gain * (scale * lora)), scale * lora + base


def call(lora, result, gain, bias, scale=SCALE):
    return dorajit.fused_dora_compose_residual(lora, result, gain, scale, bias)


def in_float32(lora, result, gain, bias, scale=SCALE):
    """The formula with the roundings of the kernel, for operands of at most 32 bits."""
    lora, result, gain = (one.float() for one in (lora, result, gain))
    base = result if bias is None else result - bias.float()
    return result + ((gain - 1) * base + gain * (scale * lora))


@pytest.mark.parametrize("mix, biased", list(itertools.product(MIXES, (False, True))))
def test_compose_residual_is_rounded_once(device, launches, mix, biased):
    given = operands(device, mix, biased=biased)
    found = call(*given)
    assert found.dtype == torch.promote_types(*mix[:2])
    assert launches() == {"compose_residual": 1}
    if torch.float64 in mix:
        assert torch.equal(found, plain(*given)[0])
    else:
        assert torch.equal(found, in_float32(*given).to(found.dtype))


@pytest.mark.parametrize("biased", (False, True))
def test_new_adapter_does_not_change_the_result(device, biased):
    lora, result, gain, bias = operands(device, MIXES[1], biased=biased)
    assert torch.equal(call(torch.zeros_like(lora), result, torch.ones_like(gain), bias), result)


@pytest.mark.parametrize("mix, biased, wanted", [
    *((mix, biased, (True,) * 3) for mix, biased in itertools.product(MIXES, (False, True))),
    *((MIXES[0], True, wanted) for wanted in itertools.product((False, True), repeat=3) if 0 < sum(wanted) < 3)])
def test_compose_residual_gradients_match_the_sum(device, launches, mix, biased, wanted):
    *leaves, bias = operands(device, mix, biased=biased)
    wide = [one.double().requires_grad_(want) for one, want in zip(leaves, wanted)]
    out = call(*(one.requires_grad_(want) for one, want in zip(leaves, wanted)), bias)
    leaves = [one for one in leaves if one.requires_grad]
    d_out = torch.randn_like(out)
    found = torch.autograd.grad(out, leaves, d_out)
    assert launches() == {"compose_residual": 1, "residual_backward": 1}
    expected = torch.autograd.grad(plain(*wide, bias)[0], [one for one in wide if one.requires_grad], d_out.double())
    for one, other, leaf in zip(found, expected, leaves, strict=True):
        assert one.dtype == leaf.dtype
        # d_gain is summed from inner, which is rounded to the type of the result.
        least = min(torch.finfo(leaf.dtype).eps ** -1, torch.finfo(out.dtype).eps ** -1)
        torch.testing.assert_close(one.double(), other, rtol=4 / least, atol=40 / least)


@pytest.mark.parametrize("gain_shape", (None, (1, 1, 6)))
def test_trained_bias_has_right_gradient(device, gain_shape):
    given = [one.double().requires_grad_() for one in operands(device, shape=(4, 6), gain_shape=gain_shape)]
    assert torch.autograd.gradcheck(call, given)
    lora, result, *others = operands(device, MIXES[5])  # the result is wider than lora
    out = call(lora, 100 * result, *(one.requires_grad_() for one in others))
    assert (out.double() - plain(lora, 100 * result, *others)[0]).abs().max() < 1e-4
    given[3] = given[3].detach()  # under vmap it also runs as several operations
    torch.testing.assert_close(torch.vmap(call, (0, 0, None, None))(*given), plain(*given)[0].view(4, 6))


def test_trained_bias_without_graph_runs_natively(device, launches):
    *others, bias = operands(device, MIXES[1])
    expected = call(*others, bias)
    torch._dynamo.reset()
    with torch.no_grad():
        assert torch.equal(torch.compile(call, backend="aot_eager")(*others, bias.requires_grad_()), expected)
    assert launches() == {"compose_residual": 2}
    for operator in (torch.ops.dorajit.compose_residual, torch.ops.dorajit.compose_residual_inner):
        with pytest.raises(RuntimeError, match="`bias` requires grad"):
            operator(*others, bias, SCALE)


def test_8_bit_lora_gives_float32_result(device):
    lora, result, gain, bias = operands(device)
    short = lora.to(torch.float8_e4m3fn)
    found = call(short, result, gain, bias)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, in_float32(short, result, gain, bias))


@pytest.mark.parametrize("memory_format", (torch.contiguous_format, torch.channels_last))
def test_compose_residual_of_images_runs_natively(device, launches, memory_format):
    lora, result, gain, bias = operands(device, shape=(2, 8, 5, 6), gain_shape=(1, 8, 1, 1))
    lora, result = (one.to(memory_format=memory_format).requires_grad_() for one in (lora, result))
    out = call(lora, result, gain.requires_grad_(), bias.flatten())
    torch.testing.assert_close(out, in_float32(lora, result, gain, bias), rtol=0, atol=0)
    assert out.is_contiguous(memory_format=memory_format)
    torch.autograd.grad(out, (lora, result, gain), torch.randn_like(out))
    assert launches() == {"compose_residual": 1, "residual_backward": 1}


def test_tensors_without_kernel_run_in_pytorch(device, launches):
    lora, result, gain, bias = operands(device, shape=(4, 6, 8))
    out = call(lora.mT, result.mT, gain[:6].expand(8, 6), None)  # a gain with two dimensions of more than one element
    torch.testing.assert_close(out, in_float32(lora.mT, result.mT, gain[:6], None), rtol=0, atol=0)
    with dorajit.disabled():
        torch.testing.assert_close(call(lora, result, gain, bias), in_float32(lora, result, gain, bias), rtol=0, atol=0)
    assert launches() == {}


@pytest.mark.parametrize("make", [
    lambda bias: torch.stack([bias, bias], -1)[..., 0], lambda bias: bias[:1].expand(24),
    torch.Tensor.double, lambda bias: torch._neg_view(bias),
    lambda bias: bias.reshape(1, 24)])
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_compose_residual_accepts_any_bias_layout(device, make, dtype):
    lora, result, gain, bias = (one.to(dtype) for one in operands(device))
    bias = make(bias)
    expected = plain(lora, result, gain, bias)[0]
    torch.testing.assert_close(call(lora, result, gain, bias).double(), expected, rtol=1e-5, atol=1e-5)
    out = call(lora.requires_grad_(), result, gain, bias)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), lora)[0], (gain * SCALE).expand(out.shape).to(dtype))


@pytest.mark.parametrize("biased", (False, True))
@pytest.mark.parametrize("mix", (MIXES[1], MIXES[4], MIXES[5]))
@pytest.mark.parametrize("dynamic", (False, True))
def test_compiled_step_runs_in_kernels(device, launches, dynamic, mix, biased):
    *leaves, bias = operands(device, mix, biased=biased)
    leaves = [one.requires_grad_() for one in leaves]
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    out = compiled(*leaves, bias)
    d_out = torch.randn_like(out)
    found = torch.autograd.grad(out, leaves, d_out)
    assert launches() == {"compose_residual": 1, "residual_backward": 1}
    expected = call(*leaves, bias)
    assert torch.equal(out, expected)
    assert all(map(torch.equal, found, torch.autograd.grad(expected, leaves, d_out)))
    launches()
    with torch.no_grad():
        assert torch.equal(compiled(*leaves, bias), expected)
    assert launches() == {"compose_residual": 1}


def test_compiled_step_with_trained_bias_has_right_gradients(device):
    given = [one.requires_grad_() for one in operands(device, shape=(4, 6))]
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(*given).sum(), given),
                               torch.autograd.grad(call(*given).sum(), given))
    with pytest.raises(Exception, match="`bias` has shape"):
        compiled(*given[:3], given[3][:-1])


@pytest.mark.parametrize("trains_bias", [False, True])
@pytest.mark.parametrize("change, error, says", [
    (lambda a: a.update(lora=a["lora"][..., :-1]), ValueError, "`result`"),
    (lambda a: a.update(result=a["result"].int()), TypeError, "`result`"),
    (lambda a: a.update(bias=a["bias"][:-1]), ValueError, "`bias`"),
    (lambda a: a.update(bias="x"), TypeError, "`bias`"),
    (lambda a: a.update(bias=False), TypeError, "`bias`"),
    (lambda a: a.update(bias=a["bias"].cfloat()), TypeError, "complex"),
    (lambda a: a.update(bias=a["bias"].to_sparse()), TypeError, "`bias` has the layout"),
    (lambda a: a.update(gain=a["gain"][:-1]), ValueError, "`gain`"),
    (lambda a: a.update(scale=torch.ones(())), TypeError, "`scale`")])
def test_compose_residual_with_bad_arguments_raises(device, change, error, says, trains_bias):
    named = dict(zip(("lora", "result", "gain", "bias"), operands(device)), scale=SCALE)
    named["bias"].requires_grad_(trains_bias)
    change(named)
    prefix = "fused_dora_compose_residual: argument " if trains_bias and says == "`result`" else ""
    with pytest.raises(error, match=prefix + says):
        call(**named)
