"""With any arguments, a call ends with a result or with an exception of a documented class."""

import math
import random

import dorajit
import pytest
import torch
from dorajit import _native

ROUNDS = 3000
lora, base, gain = torch.randn(4, 8), torch.randn(4, 8), torch.ones(8)
SHAPES = [(), (0,), (1,), (8,), (4, 8), (4, 1), (1, 8), (8, 4), (0, 8), (4, 0), (2, 4, 8), (4, 8, 1),
          (2, 8, 2, 2), (1, 8, 1, 1), (1,) * 18 + (8,)]
TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool,
         torch.uint8, torch.complex64, torch.float8_e5m2]


def freed(tensor):
    tensor.untyped_storage().resize_(0)
    return tensor


def expired(tensor):
    """A tensor in memory that belonged to another tensor."""
    return tensor.as_strided((4, 8), (1, 1)) if tensor.numel() >= 11 else tensor


CHANGES = [
    lambda one: one.mT if one.dim() > 1 else one,
    lambda one: one.expand(3, *one.shape),
    lambda one: one.unsqueeze(-1).expand(*one.shape, 5),
    lambda one: one.flip(-1) if one.dim() else one,
    lambda one: one[..., ::2] if one.dim() else one,
    lambda one: one.repeat_interleave(2, -1)[..., 1::2] if one.dim() else one,
    lambda one: one.to("meta"),
    lambda one: one.to_sparse() if one.dim() else one,
    lambda one: one.conj() if one.is_complex() else one,
    lambda one: torch._neg_view(one) if one.is_floating_point() else one,
    lambda one: torch._efficientzerotensor(one.shape) if one.dim() else one,
    lambda one: one.as_subclass(type("Own", (torch.Tensor,), {})),
    lambda one: torch.nn.Parameter(one, one.is_floating_point()),
    lambda one: one.requires_grad_().clone() if one.is_floating_point() else one,
    lambda one: torch.nested.nested_tensor([one, one]) if one.dim() else one,
    freed, expired,
]
OTHERS = [None, 1.5, "x", b"x", [1.0], (), {}, object(), math.nan, 2**70, lora.numpy(), torch.float32, lora, base, gain]


def anything(choose):
    if choose.random() < 0.3:
        return choose.choice(OTHERS)
    tensor = torch.ones(choose.choice(SHAPES)).to(choose.choice(TYPES))
    if choose.random() < 0.2:
        with torch.inference_mode():
            tensor = tensor.clone()
    try:
        return choose.choice(CHANGES)(tensor) if choose.random() < 0.6 else tensor
    except (RuntimeError, NotImplementedError):  # PyTorch cannot create such a tensor
        return tensor


def some(choose, right):
    return [one if choose.random() < 0.6 else anything(choose) for one in right]


def scale(choose):
    return choose.choice([0.5] * 6 + [2, math.nan, math.inf, -0.0, 1e308, 10**400, None, "y", True, torch.ones(())])


def call(choose):
    """A call of a public function with mostly valid arguments."""
    three = some(choose, (lora, base, gain))
    flags = [choose.choice([True, False, True, None, "x", 2]) for _ in range(3)]
    operation = choose.choice(["compose", "compose_inner", "backward", "norm_assembly", "x", None, []])
    return choose.choice([
        lambda: dorajit.fused_dora_compose(*three, scale(choose), flags[0]),
        lambda: dorajit.fused_dora_compose_autograd(*three, scale(choose)),
        lambda: dorajit.FusedDoRAComposeFunction.apply(*three, scale(choose)),
        lambda: dorajit.fused_dora_forward_and_inner(*three, scale(choose)),
        lambda: dorajit.fused_norm_assembly(*some(choose, (gain,) * 3), scale(choose)),
        lambda: dorajit.compose_backward(*three, scale(choose), *flags),
        lambda: dorajit.explain_dispatch(*three, operation),
        lambda: dorajit.warmup(operation, *three[:choose.choice([2, 3, 3, 3])], inplace=flags[0],
                               wanted=choose.choice([flags, None, (True,), (True,) * 3])),
        lambda: dorajit.weight_norm(*some(choose, (base, torch.ones(2, 8), torch.ones(4, 2))),
                                    scale(choose),
                                    chunk_mb=choose.choice([None, 1, 0, -1, 2**70, "x", 1.5])),
    ])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grad", [True, False])
def test_random_calls_end_with_a_result_or_a_documented_exception(grad):
    choose = random.Random(7 + grad)
    served = 0
    with torch.set_grad_enabled(grad):
        for _ in range(ROUNDS // 2):
            try:
                call(choose)()
                served += 1
            # dorajit.OutOfMemoryError is both a MemoryError and a RuntimeError.
            except (ValueError, TypeError, RuntimeError) as error:
                assert str(error), type(error)
    assert served > ROUNDS // 20


def test_random_calls_of_the_extension_module_do_not_crash():
    """With any tensors; its callers guarantee that the scale is a float."""
    choose = random.Random(11)
    for _ in range(ROUNDS):
        name, count = choose.choice([("compose", 4), ("compose_inner", 5), ("backward", 6), ("norm_assembly", 4)])
        right = [lora.clone(), base, gain, torch.empty_like(lora), torch.empty_like(lora), gain.clone()]
        try:
            getattr(_native, name)(*some(choose, right[:count]), 0.5)
        except (ValueError, TypeError, RuntimeError):
            pass
