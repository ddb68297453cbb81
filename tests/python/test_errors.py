"""Bad input raises the documented exception, which names the argument, also in random calls; nothing crashes or leaks."""

import gc
import math
import pickle
import random
import resource

import dorajit
import numpy
import pytest
import torch
from dorajit import _native
from reference import SCALE, operands

lora, base, gain = (torch.randn(4, 8), torch.randn(4, 8), torch.ones(8))


@pytest.mark.parametrize("arguments, kind, message", [
    ((lora, base[:2], gain, 0.5), ValueError, "`base` has shape"),
    ((lora, base, gain[:3], 0.5), ValueError, "`gain` has shape"),
    ((lora, base, torch.ones(2, 1, 8), 0.5), ValueError, "`gain` has shape"),
    ((lora.int(), base, gain, 0.5), TypeError, "`lora` has elements of torch.int32"),
    ((lora, base.bool(), gain, 0.5), TypeError, "`base` has elements of torch.bool"),
    ((lora, base, gain.long(), 0.5), TypeError, "`gain` has elements"),
    ((lora.numpy(), base, gain, 0.5), TypeError, "`lora` is a ndarray"),
    ((lora, None, gain, 0.5), TypeError, "`base` is a NoneType"),
    ((lora, base, 1.5, 0.5), TypeError, "`gain` is a float"),
    ((lora, base, gain, torch.tensor(0.5)), TypeError, "`scale` is a Tensor"),
    ((lora, base, gain, "0.5"), TypeError, "`scale` is a str"),
    ((lora, base, gain, None), TypeError, "`scale` is a NoneType"),
    ((lora, base, gain, 1j), TypeError, "`scale` is a complex"),
    ((lora, base, gain, numpy.bool_(True)), TypeError, "`scale` is a bool"),
    ((lora, base, gain, bytearray(b"2")), TypeError, "`scale` is a bytearray"),
    ((lora, base, gain, numpy.ones(2)), TypeError, "`scale` cannot be converted to a float"),
    ((lora, base.to("meta"), gain, 0.5), ValueError, "`base` is on meta"),
    ((lora, base.cfloat(), gain, 0.5), TypeError, "`base` has elements of torch.complex64"),
    ((lora.cfloat(), base.cfloat(), gain.cfloat(), 0.5), TypeError, "`lora` has elements of torch.complex64"),
    ((lora.to_sparse(), base, gain, 0.5), TypeError, "`lora` has the layout torch.sparse_coo; pass a dense tensor"),
    ((lora.to_mkldnn(), base, gain, 0.5), TypeError, "`lora` has the layout torch._mkldnn; pass a dense tensor"),
], ids=str)
def test_compose_with_bad_operands_raises(launches, arguments, kind, message):
    for function in (dorajit.fused_dora_compose, dorajit.fused_dora_compose_autograd,
                     dorajit.fused_dora_forward_and_inner):
        for grad in (False, True):
            tensors = [argument.detach().requires_grad_()
                       if grad and argument is gain else argument for argument in arguments]
            with pytest.raises(kind, match=message):
                function(*tensors)
    assert launches() == {}


@pytest.mark.parametrize("scale", [1, numpy.float32(0.5), numpy.float64(0.5)])
def test_scale_convertible_to_float_is_accepted(launches, scale):
    out = dorajit.fused_dora_compose(lora, base, gain, scale, inplace=False)
    assert torch.equal(out, float(scale) * lora)
    assert launches() == {"compose": 1}


@pytest.mark.parametrize("arguments, kind, message", [
    ((lora, base[:2], gain, 0.5), ValueError, "`inner` has shape"),
    ((lora, None, gain, 0.5), TypeError, "`inner` is None"),
    ((lora.int(), base, gain, 0.5), TypeError, "`d_out` has elements"),
    ((lora, base, gain[:5], 0.5), ValueError, "`gain` has shape"),
])
def test_backward_with_bad_operands_raises(arguments, kind, message):
    with pytest.raises(kind, match=message):
        dorajit.compose_backward(*arguments)


def test_norm_assembly_with_bad_operands_raises():
    with pytest.raises(ValueError, match="`cross` has shape"):
        dorajit.fused_norm_assembly(gain, gain[:2], gain, 0.5)
    with pytest.raises(TypeError, match="`ba_norm_sq` has elements"):
        dorajit.fused_norm_assembly(gain, gain, gain.int(), 0.5)


def test_overlapping_operands_raise():
    memory = torch.randn(100)
    first, second = memory[:32].view(4, 8), memory[16:48].view(4, 8)
    with pytest.raises(ValueError, match="`out` overlaps `base`"):
        dorajit.fused_dora_compose(first, second, gain, 0.5)
    with pytest.raises(ValueError, match="overlaps `gain`"):
        dorajit.fused_dora_compose(first, base, memory[:8], 0.5)
    with pytest.raises(RuntimeError, match="single memory location"):
        dorajit.fused_dora_compose(memory[:8].expand(4, 8), base, gain, 0.5)
    assert dorajit.fused_dora_compose(first, first, gain, 0.5) is first


def test_impossible_sizes_raise():
    for rows in (2**30, 2**40):  # 2^52 elements, and so many that their bytes do not fit in 64 bits
        huge, channels = torch.empty(1).expand(rows, 2**22), torch.ones(2**22)
        for call in (lambda: dorajit.fused_dora_compose(huge, huge, channels, 0.5, inplace=False),
                     lambda: dorajit.fused_dora_compose(huge, huge, channels, 0.5),
                     lambda: dorajit.fused_dora_forward_and_inner(huge, huge, channels, 0.5),
                     lambda: dorajit.compose_backward(huge, huge, channels, 0.5),
                     lambda: dorajit.warmup("backward", huge, huge, channels)):
            with pytest.raises(RuntimeError, match="memory|size"):
                call()


@pytest.mark.parametrize("call", [
    lambda gone: dorajit.fused_dora_compose(gone, base, gain, 0.5),
    lambda gone: dorajit.fused_dora_compose(gone, base, gain, 0.5, inplace=False),
    lambda gone: dorajit.fused_dora_compose(gone.requires_grad_(), base, gain, 0.5, inplace=False),
    lambda gone: dorajit.fused_dora_forward_and_inner(gone, base, gain, 0.5),
    lambda gone: dorajit.compose_backward(gone, base, gain, 0.5),
    lambda gone: dorajit.fused_norm_assembly(gone, base, base, 0.5),
    lambda gone: dorajit.weight_norm(gone, torch.ones(2, 8), torch.ones(4, 2), 0.5),
    lambda gone: dorajit.warmup("compose", gone, base, gain),
])
def test_tensor_with_freed_memory_raises(call):
    gone = torch.randn(4, 8)
    gone.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="` has shape .* its memory was freed"):
        call(gone)


def test_zero_tensor_without_memory_raises():
    with pytest.raises(ValueError, match="`lora` is null"):
        dorajit.fused_dora_compose(torch._efficientzerotensor((4, 8)), base, gain, 0.5, inplace=False)


@pytest.mark.parametrize("wanted", [None, (True,), 7])
def test_warmup_with_bad_arguments_raises(wanted):
    with pytest.raises(TypeError, match="`wanted` is"):
        dorajit.warmup("backward", lora, base, gain, wanted=wanted)
    with pytest.raises(ValueError, match="`operation` is"):
        dorajit.warmup([], lora, base, gain)


def test_exceptions_keep_status_and_log_when_pickled():
    error = dorajit.errors.from_status(6, "no", "line 1: no")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is dorajit.CompileError and again.log == "line 1: no" and again.status == 6
    assert issubclass(dorajit.CompileError, RuntimeError)
    assert issubclass(dorajit.InvalidArgumentError, ValueError)
    assert issubclass(dorajit.UnsupportedError, TypeError)


def test_hundred_thousand_calls_do_not_leak():
    tensors = operands((2, 8), "cpu", grad=True)
    plain = operands((2, 8), "cpu")
    def round_of_calls(count):
        for i in range(count):
            dorajit.fused_dora_compose(*plain, SCALE, inplace=False)
            if i % 10 == 0:
                dorajit.fused_dora_compose_autograd(*tensors, SCALE).backward(plain[0])
                try:
                    dorajit.fused_dora_compose(plain[0], plain[1][:1], plain[2], SCALE)
                except ValueError:
                    pass
    round_of_calls(10_000)
    gc.collect()
    objects, memory = len(gc.get_objects()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    round_of_calls(100_000)
    gc.collect()
    assert len(gc.get_objects()) - objects < 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 4096  # KiB


# --- random calls --------------------------------------------------------------------------------

ROUNDS = 3000
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
