"""The operation weight_norm: norms of the rows of W + s B A by one kernel."""

import dorajit
import pytest
import torch
from dorajit import errors
from dorajit.operations import run
from dorajit.control import force_native
from dorajit.operations.table import operations
from reference import exact_norm

WEIGHT_NORM = operations["weight_norm"]
SCALE = -0.75
F32, BF16, F16, F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64


def factors(out, columns, rank, types, device="cpu"):
    shapes = (out, columns), (rank, columns), (out, rank)
    torch.manual_seed(out + columns + rank)
    return [torch.randn(shape).to(device, dtype) for shape, dtype in zip(shapes, types)]


def call(given, magnitude, wanted, dtype=F32):
    """The outputs named in `wanted`, of norm, norm_square, gain and divisor."""
    wanted += [False] * (4 - len(wanted))
    return torch.ops.dorajit.weight_norm(*given, magnitude, SCALE, wanted, *(dtype,) * 4)


@pytest.mark.parametrize("types", [(BF16, BF16, BF16), (BF16, F32, F32), (F16, F16, F16), (F32, BF16, F32),
                                   (F32, F32, F32)])
@pytest.mark.parametrize("out, columns, rank", [(8, 16, 1), (33, 130, 7), (128, 256, 64)])
def test_weight_norm_outputs_alone_equal_outputs_together(device, out, columns, rank, types):
    given = factors(out, columns, rank, types, device)
    norms, magnitude = exact_norm(*given, SCALE), torch.rand(out, device=device) + 0.5
    with force_native():
        norm, = call(given, None, [True, False, False])
        square, = call(given, None, [False, True, False])
        gain, = call(given, magnitude, [False, False, True])
        together = call(given, magnitude, [True, True, True, True])
    torch.testing.assert_close(norm.double(), norms, rtol=2e-6, atol=0)
    torch.testing.assert_close(square.double(), norms.square(), rtol=4e-6, atol=0)
    torch.testing.assert_close(gain.double(), magnitude / norms, rtol=3e-6, atol=0)
    torch.testing.assert_close(together, (norm, square, gain, norm), rtol=0, atol=0)


def test_weight_norm_of_float64_is_computed_in_float64(device):
    given = factors(9, 33, 5, (F64, F64, F64), device)
    norm, = call(given, None, [True, False, False], F64)
    torch.testing.assert_close(norm, exact_norm(*given, SCALE), rtol=1e-14, atol=0)


def test_weight_norm_of_nearly_cancelling_terms_is_accurate(device):
    weight = torch.randn(64, 256, device=device)
    b, a = torch.linalg.qr(weight)  # weight = b @ a up to a relative error of 1e-6
    norm, = torch.ops.dorajit.weight_norm(weight, a.contiguous(), b.contiguous(), None, -1.0,
                                          [True, False, False, False], F32, F32, F32, F32)
    bound = 2e-6 * weight.norm(dim=1).max().item()
    torch.testing.assert_close(norm.double(), exact_norm(weight, a, b, -1.0), rtol=0, atol=bound)


def test_weight_norm_expression_matches_kernel(device):
    given = factors(40, 96, 12, (BF16, BF16, BF16), device)
    magnitude = torch.rand(40, device=device)
    by_kernel = call(given, magnitude, [True, True, True, True])
    with dorajit.disabled():
        by_expression = call(given, magnitude, [True, True, True, True])
    torch.testing.assert_close(by_kernel, by_expression, rtol=3e-6, atol=0)


def test_compiled_code_calls_weight_norm(device):
    given = factors(16, 64, 4, (F32, F32, F32), device)
    compiled = torch.compile(lambda *of: call(of, None, [True, False, False])[0], fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), call(given, None, [True, False, False])[0])


@pytest.mark.parametrize("types", [(BF16, BF16, BF16), (F32, F32, F32)])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_non_finite_element_affects_only_its_row(device, types, wrong):
    given = factors(130, 700, 40, types, device)
    given[0][3, 699] = given[0][129, 0] = wrong
    given[2][70, 39] = wrong
    norm, = call(given, None, [True, False, False])
    assert (~norm.isfinite()).nonzero().flatten().tolist() == [3, 70, 129]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("types", [(BF16, BF16, BF16), (BF16, F32, F32)])
@pytest.mark.parametrize("out, columns, rank", [(200, 4096, 16), (1024, 1024, 384)])
def test_captured_weight_norm_is_replayed_with_new_values(out, columns, rank, types):
    given, others = factors(out, columns, rank, types, "cuda"), factors(out, columns, rank, types, "cuda")
    for one in others:
        one.mul_(2)
    magnitude = torch.rand(out, device="cuda")
    expected = call(others, magnitude, [True, False, True])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call(given, magnitude, [True, False, True])
    for one, other in zip(given, others):
        one.copy_(other)
    graph.replay()
    assert all(map(torch.equal, found, expected))


def test_gain_of_16_bit_magnitude_divides_by_the_rounded_norm(device):
    given = factors(130, 64, 4, (BF16, BF16, BF16), device)
    given[0][7], given[2][7] = 0, 0
    magnitude = torch.rand(130, device=device).bfloat16()
    norm, gain, divisor = call(given, magnitude, [True, False, True, True])
    assert torch.equal(divisor, norm.clamp_min(1e-12).bfloat16().float())
    assert torch.equal(gain, magnitude.float() / divisor)


def test_weight_norm_with_bad_arguments_raises(device):
    weight, a, b = given = factors(16, 64, 4, (F32, F32, F32), device)
    with pytest.raises(ValueError, match="`lora_B`"):
        call((weight, a, b[:, :3].contiguous()), None, [True, False, False])
    with force_native():
        with pytest.raises(errors.Error, match="`gain` is made of `magnitude`; pass it"):
            run.launch(WEIGHT_NORM, (*given, None), (None, None, F32, None), SCALE)
        with pytest.raises(errors.Error, match="`divisor` comes with `gain`"):
            run.launch(WEIGHT_NORM, (*given, torch.rand(16, device=device)), (F32, None, None, F32), SCALE)
    with dorajit.disabled(), pytest.raises(ValueError, match="pass it"):
        call(given, None, [False, False, True])


def test_weight_norm_results_are_constants_for_autograd(device):
    given = [one.requires_grad_() for one in factors(16, 64, 4, (F32, F32, F32), device)]
    assert not any(one.requires_grad for one in call(given, torch.rand(16, device=device), [True, True, True]))
