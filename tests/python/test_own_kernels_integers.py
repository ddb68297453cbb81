"""Own kernels with tensors of integers and truth values; on a GPU also what they compute."""

import json

import pytest
import torch

import dorajit
from dorajit import _native

INTEGERS = {"int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
            "uint8": torch.uint8, "bool": torch.bool}
GATHER = {
    "name": "gather", "source": """template <int BLOCK>
__global__ void gather(const T* table, const I* ids, T* out, long long n, long long width) {
  const long long at = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
  if (at < n * width) out[at] = table[static_cast<long long>(ids[at / width]) * width + at % width];
}
""",
    "entry": "gather<BLOCK>",
    "arguments": [("table", "in", "T[rows, width]"), ("ids", "in", "I[n]"), ("out", "out", "T[n, width]"),
                  ("n", "int64"), ("width", "int64")],
    "types": {"T": ["float32", "bfloat16"], "I": ["int64", "int32"]}, "parameters": {"BLOCK": [64, 128, 256]},
    "default": {"BLOCK": 128}, "grid": "ceil_div(n * width, BLOCK)", "block": "BLOCK",
    "key": ["T", "I", "bucket(n)", "bucket(rows)", "width"], "limits": {"ids": "rows"}}
MASK = {
    "name": "mask", "source": """template <int BLOCK>
__global__ void mask(const T* x, const bool* kept, T* out, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i < n) out[i] = kept[i] ? x[i] : T(0);
}
""",
    "entry": "mask<BLOCK>",
    "arguments": [("x", "in", "T[n]"), ("kept", "in", "bool[n]"), ("out", "out", "T[n]"), ("n", "int64")],
    "types": {"T": list(INTEGERS)}, "parameters": {"BLOCK": [64, 128, 256]}, "default": {"BLOCK": 128},
    "grid": "ceil_div(n, BLOCK)", "block": "BLOCK", "key": ["T", "bucket(n)"]}

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def gather(**changes):
    return dorajit.Kernel(**{**GATHER, **changes})


def test_json_has_the_limits():
    kernel = gather()
    assert json.loads(kernel.to_json())["limits"] == {"ids": "rows"}
    again = dorajit.Kernel.from_json(kernel.to_json())
    assert json.loads(again.to_json()) == json.loads(kernel.to_json())


@pytest.mark.parametrize("limits, message", [
    ({"idx": "rows"}, '"limits" has `idx`, which is no tensor'),
    ({"table": "rows"}, "has `table`, whose elements are not integers"),
    ({"out": "rows"}, "has `out`, which is only written"),
    ({"ids": 0}, 'has `ids`, whose limit "0" is 0'),
    ({"ids": "BLOCK"}, "the name `BLOCK` is unknown"),
])
def test_a_wrong_limit_is_refused(limits, message):
    with pytest.raises(dorajit.InvalidArgumentError, match=message):
        gather(limits=limits)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_every_type_are_read(name):
    kernel = dorajit.Kernel(**MASK)
    x = torch.ones(16, dtype=INTEGERS[name])
    # They were read, and then refused as what they are.
    with pytest.raises(dorajit.WrongDeviceError, match="mask: argument `x` is on the CPU"):
        kernel(x, torch.ones(16, dtype=torch.bool), torch.empty_like(x), 16)


def test_integers_of_another_type_are_refused_by_name():
    table, ids = torch.ones(4, 8), torch.zeros(3, dtype=torch.int16)
    with pytest.raises(dorajit.UnsupportedError, match="argument `ids` has elements of I, which is one of int64"):
        gather()(table, ids, torch.empty(3, 8), 3, 8)


def test_operations_of_the_library_take_no_integers():
    integers = torch.ones(4, 8, dtype=torch.int32)
    with pytest.raises(dorajit.UnsupportedError, match="argument `lora` is not a dense float16, bfloat16, float32"):
        _native.compose(integers, integers, torch.ones(8), True, 1.0)


def test_an_output_of_an_operator_has_the_type_of_the_description():
    op = gather().as_torch_op("dorajit_tests::gather", shapes={"out": lambda table, ids, n, width: (n, width)})
    # The table is the first tensor of the type `T`, the ids of `I` come first.
    ids_first = gather(arguments=[GATHER["arguments"][place] for place in (1, 0, 2, 3, 4)])
    op_of_ids = ids_first.as_torch_op("dorajit_tests::gather_by_ids",
                                      shapes={"out": lambda ids, table, n, width: (n, width)})
    flags = dorajit.Kernel(**{**MASK, "arguments": [("x", "in", "T[n]"), ("kept", "out", "bool[n]"),
                                                    ("out", "out", "int8[n]"), ("n", "int64")]})
    op_of_flags = flags.as_torch_op("dorajit_tests::flags", shapes={"kept": lambda x, n: x.shape,
                                                                    "out": lambda x, n: x.shape})
    with torch._subclasses.FakeTensorMode():
        table = torch.empty(4, 8, device="cuda", dtype=torch.bfloat16)
        ids = torch.empty(3, device="cuda", dtype=torch.int64)
        for out in (op(table, ids, 3, 8), op_of_ids(ids, table, 3, 8)):
            assert out.shape == (3, 8) and out.dtype == torch.bfloat16
        assert [one.dtype for one in op_of_flags(ids, 3)] == [torch.bool, torch.int8]


@needs_cuda
@pytest.mark.parametrize("rows", [1, 7, 50000])
@pytest.mark.parametrize("id_type", [torch.int64, torch.int32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_gathered(dtype, id_type, rows):
    table = torch.randn(rows, 24, device="cuda", dtype=dtype)
    ids = torch.randint(rows, (3000,), device="cuda", dtype=id_type)
    out = torch.empty(3000, 24, device="cuda", dtype=dtype)
    kernel = gather()
    assert kernel.tune(table, ids, out, 3000, 24)["source"] == "tuned"
    kernel(table, ids, out, 3000, 24)
    assert torch.equal(out, table[ids.long()])


@needs_cuda
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_every_type_are_computed(name):
    x = torch.randint(-100, 100, (5000,), device="cuda").to(INTEGERS[name])
    kept = torch.rand(5000, device="cuda") < 0.5
    out = torch.empty_like(x)
    kernel = dorajit.Kernel(**MASK, tolerance=0.01)
    assert kernel.tune(x, kept, out, 5000)["source"] == "tuned"
    kernel(x, kept, out, 5000)
    assert torch.equal(out, torch.where(kept, x, torch.zeros_like(x)))


@needs_cuda
def test_integers_are_added_atomically_without_a_tolerance():
    count = dorajit.Kernel(
        name="count", source="""template <int BLOCK>
__global__ void count(const unsigned char* x, int* counts, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i < n) atomicAdd(counts + x[i], 1);
}
""", entry="count<BLOCK>",
        arguments=[("x", "in", "uint8[n]"), ("counts", "inout", "int32[bins]"), ("n", "int64")],
        parameters={"BLOCK": [64, 128, 256, 512]}, default={"BLOCK": 128}, grid="ceil_div(n, BLOCK)",
        block="BLOCK", key=["bucket(n)", "bins"], limits={"x": "bins"})
    x = torch.randint(10, (100000,), device="cuda", dtype=torch.uint8)
    counts = torch.zeros(10, device="cuda", dtype=torch.int32)
    assert count.tune(x, counts, x.numel())["source"] == "tuned"
    count(x, counts, x.numel())
    assert torch.equal(counts.long(), torch.bincount(x.long(), minlength=10))


@needs_cuda
def test_an_operator_with_ids_is_compiled_whole():
    op = gather().as_torch_op("dorajit_tests::gather_compiled", shapes={"out": lambda table, ids, n, width: (n, width)})
    table = torch.randn(100, 16, device="cuda")
    ids = torch.randint(100, (500,), device="cuda")
    out = torch.compile(lambda table, ids: op(table, ids, 500, 16) + 1, fullgraph=True)(table, ids)
    torch.testing.assert_close(out, table[ids] + 1)
