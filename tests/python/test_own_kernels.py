"""Kernels of the user's own: descriptions, refusals, operators, tensors of integers; on a GPU also what they compute."""

import fractions
import json

import dorajit
import pytest
import torch
from dorajit import _native
from reference import needs_gpu

SOURCE = """template <int BLOCK, int VEC>
__global__ void scale(const T* x, T* out, long long n, float factor) {
  const long long first = (static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x) * VEC;
  for (int i = 0; i < VEC && first + i < n; ++i) out[first + i] = x[first + i] * factor;
}
"""
DESCRIPTION = {
    "name": "scale", "source": SOURCE, "entry": "scale<BLOCK, VEC>",
    "arguments": [("x", "in", "T[n]"), ("out", "out", "T[n]"), ("n", "int64"), ("factor", "float32")],
    "types": {"T": ["float32", "bfloat16"]}, "parameters": {"BLOCK": [64, 128, 256], "VEC": [1, 2, 4]},
    "default": {"BLOCK": 128, "VEC": 1}, "constraint": "n % VEC == 0",
    "grid": "ceil_div(n, BLOCK * VEC)", "block": "BLOCK", "key": ["T", "bucket(n)"]}
INTEGERS = {"int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
            "uint8": torch.uint8, "uint16": torch.uint16, "uint32": torch.uint32, "uint64": torch.uint64,
            "bool": torch.bool}
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


def make(**changes):
    return dorajit.Kernel(**{**DESCRIPTION, **changes})


def gather(**changes):
    return dorajit.Kernel(**{**GATHER, **changes})


def test_a_description_becomes_a_kernel_and_json_again():
    kernel = make()
    assert kernel.name == "scale"
    assert "x in T[n]" in repr(kernel)
    limited = gather()
    assert json.loads(limited.to_json())["limits"] == {"ids": "rows"}
    for one in (kernel, limited):
        again = dorajit.Kernel.from_json(one.to_json())
        assert json.loads(again.to_json()) == json.loads(one.to_json())


def test_a_source_may_be_a_file(tmp_path):
    path = tmp_path / "scale.cu"
    path.write_text(SOURCE)
    described = json.loads(make(source=str(path)).to_json())
    assert described["source"] == SOURCE and described["file"] == "scale.cu"
    with pytest.raises(FileNotFoundError):
        make(source=str(tmp_path / "none.cu"))


@pytest.mark.parametrize("changes, message", [
    ({"grid": "ceil_div(m, BLOCK)"}, 'kernel description: "grid": expression .* the name `m` is unknown'),
    ({"entry": "shrink<BLOCK, VEC>"}, "the source has no kernel `shrink`; it has `scale`"),
    ({"key": ["T"]}, '"key" lacks `n`'),
    ({"types": {"T": ["float8"]}}, 'has "float8" for `T`; there are float32, .*, bool'),
    ({"options": ["-I/usr/include"]}, "which is not served"),
    ({"block": "BLOCK / 0"}, "it divides by zero"),
    ({"limits": {"idx": "n"}}, '"limits" has `idx`, which is no tensor'),
    ({"limits": {"x": "n"}}, "has `x`, whose elements are not integers"),
    ({"limits": {"out": "n"}}, "has `out`, which is only written"),
    ({**GATHER, "limits": {"ids": 0}}, 'has `ids`, whose limit "0" is 0'),
    ({**GATHER, "limits": {"ids": "BLOCK"}}, "the name `BLOCK` is unknown"),
    ({"grid": "\u00d7n"}, 'a value was expected and not "\u00d7"'),
    ({"arguments": 5}, '"arguments"'),
    ({"arguments": [5]}, '"arguments"'),
    ({"tolerance": float("inf")}, "not JSON compliant"),
    ({"parameters": {"BLOCK": [object()], "VEC": [1]}}, "not iterable"),
])
def test_a_wrong_description_is_refused_by_the_field(changes, message):
    with pytest.raises(dorajit.InvalidArgumentError, match=message):
        dorajit.Kernel(**(changes if "name" in changes else {**DESCRIPTION, **changes}))


def test_the_wrong_number_of_arguments_is_a_type_error():
    with pytest.raises(TypeError, match="scale takes 4 arguments, not 2"):
        make()(torch.ones(4), torch.ones(4))


def test_tensors_of_the_cpu_are_refused_by_name():
    with pytest.raises(dorajit.WrongDeviceError, match="scale: argument `x` is on the CPU"):
        make()(torch.ones(4), torch.empty(4), 4, 2.0)


@pytest.mark.parametrize("name, wrong", [
    *(("out", one) for one in ([1.0], None, torch.ones(4, dtype=torch.complex64), "x")),
    *(("x", torch.ones(4, dtype=one).conj().imag) for one in (torch.complex64, torch.complex128))])  # pending negations
def test_what_is_no_tensor_of_a_kernel_is_refused_by_name(name, wrong):
    given = {"x": torch.ones(4), "out": torch.empty(4), name: wrong}
    with pytest.raises(dorajit.UnsupportedError, match=f"scale: argument `{name}` is no dense tensor"):
        make()(*given.values(), 4, 2.0)


@pytest.mark.parametrize("wrong, error", [("four", TypeError), (None, TypeError), (1j, TypeError),
                                          (10 ** 400, OverflowError)])
def test_what_is_no_number_raises(wrong, error):
    with pytest.raises(error):
        make()(torch.ones(4), torch.empty(4), wrong, 2.0)


class Three(int):
    def __float__(self):
        return 3.5


@pytest.mark.parametrize("given, read", [(-1, "-1"), (2 ** 60, "1152921504606846976"), (4.5, "4.5"), (Three(4), "3.5"),
                                         (fractions.Fraction(9, 2), "4.5")])
def test_numbers_have_the_value_of_python(vector, given, read):
    with pytest.raises(dorajit.InvalidArgumentError, match=f"scale: argument `n` is {read};"):
        make()(vector, vector, given, 2.0)


def test_tensors_of_another_library_are_read_through_dlpack():
    class Foreign:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **named):
            return self.tensor.__dlpack__(**named)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    # It was read, and then refused as what it is.
    with pytest.raises(dorajit.WrongDeviceError, match="argument `x` is on the CPU"):
        make()(Foreign(torch.ones(4)), Foreign(torch.empty(4)), 4, 2.0)


def test_an_operator_has_the_shapes_that_it_was_given():
    op = make().as_torch_op("dorajit_tests::scale", shapes={"out": lambda x, n, factor: x.shape})
    with torch._subclasses.FakeTensorMode():
        out = op(torch.empty(3, device="cuda"), 3, 2.0)
    assert out.shape == (3,) and out.device.type == "cuda"
    assert str(torch.ops.dorajit_tests.scale.default._schema) == (
        "dorajit_tests::scale(Tensor x, int n, float factor) -> Tensor")


def test_an_operator_needs_the_shape_of_each_output():
    with pytest.raises(ValueError, match="argument `shapes` has none for `out`"):
        make().as_torch_op("dorajit_tests::shapeless", shapes={})


def test_the_examples_are_kernels(examples):
    configs = 1
    for values in json.loads(examples.conv2d.to_json())["parameters"].values():
        configs *= len(values)
    assert configs > 100
    assert all(getattr(examples, name) is kernel for name, (kernel, _) in examples.EXAMPLES.items())


@needs_gpu
@pytest.mark.parametrize("name", ["swiglu", "rms_norm", "transpose", "embedding", "layer_norm_backward", "total", "argmax",
                                  "int4_gemv"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_example_in_every_type_matches_pytorch(examples, name, dtype):
    explanation, error = examples.run(name, dtype=dtype)
    assert explanation["config"]
    assert error < {torch.float32: 1e-4, torch.bfloat16: 2.0 ** -7, torch.float16: 2.0 ** -10}[dtype]


@needs_gpu
def test_convolution_example_matches_pytorch(examples):
    explanation, error = examples.run("conv2d")
    assert explanation["config"] and error < 1e-4


@needs_gpu
@pytest.mark.parametrize("id_type", [torch.int64, torch.int32])
def test_embedding_example_copies_rows(examples, id_type):
    explanation, error = examples.run("embedding", dtype=torch.float32, id_type=id_type, n=1000, rows=700, cols=96)
    assert explanation["config"] and ("i64" if id_type == torch.int64 else "i32") in explanation["problem"]
    assert error == 0


@needs_gpu
@pytest.mark.parametrize("n", [1, 2, 3, 1000, 4096, 4097, 1 << 20])
def test_every_size_is_computed(n):
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    kernel = make()
    kernel(x, out, n, 2.0)
    torch.testing.assert_close(out, x * 2, rtol=0, atol=0)


@needs_gpu
def test_a_captured_call_replays():
    kernel = make()
    x, out = torch.randn(2, 4096, device="cuda")
    kernel.warmup(x, out, 4096, 3.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, out, 4096, 3.0)
    out.zero_()
    graph.replay()
    torch.testing.assert_close(out, x * 3, rtol=0, atol=0)


@needs_gpu
def test_an_operator_is_compiled_and_differentiated():
    kernel = make()

    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[2]

    op = kernel.as_torch_op("dorajit_tests::scale_with_gradient",
                            shapes={"out": lambda x, n, factor: x.shape},
                            backward=lambda ctx, grad: (grad * ctx.factor, None, None),
                            setup_context=setup_context)
    x = torch.randn(4096, device="cuda", requires_grad=True)
    out = torch.compile(lambda x: op(x, 4096, 2.0) + 1, fullgraph=True)(x)
    out.sum().backward()
    torch.testing.assert_close(out, x * 2 + 1)
    torch.testing.assert_close(x.grad, torch.full_like(x, 2))


@needs_gpu
def test_a_call_of_a_tuned_kernel_costs_the_host_little():
    import time
    kernel = make()
    x, out = torch.randn(2, 4096, device="cuda")
    for _ in range(100):
        kernel(x, out, 4096, 2.0)
    best = float("inf")
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            kernel(x, out, 4096, 2.0)
        best = min(best, (time.perf_counter() - start) / 200)
    assert best < 12e-6  # twice the bar, which a busy machine does not fail


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_every_type_are_read(name):
    kernel = dorajit.Kernel(**MASK)
    x = torch.ones(16, dtype=INTEGERS[name])
    # They were read, and then refused as what they are.
    with pytest.raises(dorajit.WrongDeviceError, match="mask: argument `x` is on the CPU"):
        kernel(x, torch.ones(16, dtype=torch.bool), torch.empty_like(x), 16)


def test_integers_of_another_type_are_refused_by_name():
    table, ids = torch.ones(4, 8), torch.zeros(3, dtype=torch.int16)
    with pytest.raises(dorajit.UnsupportedError, match="argument `ids` takes elements of I, which is one of int64"):
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


@needs_gpu
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


@needs_gpu
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_every_type_are_computed(name):
    x = torch.randint(-100, 100, (5000,), device="cuda").to(INTEGERS[name])
    kept = torch.rand(5000, device="cuda") < 0.5
    out = torch.empty_like(x)
    kernel = dorajit.Kernel(**MASK, tolerance=0.01)
    assert kernel.tune(x, kept, out, 5000)["source"] == "tuned"
    kernel(x, kept, out, 5000)
    assert torch.equal(out.long(), torch.where(kept, x.long(), 0))


@needs_gpu
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


@needs_gpu
def test_an_operator_with_ids_is_compiled_whole():
    op = gather().as_torch_op("dorajit_tests::gather_compiled", shapes={"out": lambda table, ids, n, width: (n, width)})
    table = torch.randn(100, 16, device="cuda")
    ids = torch.randint(100, (500,), device="cuda")
    out = torch.compile(lambda table, ids: op(table, ids, 500, 16) + 1, fullgraph=True)(table, ids)
    torch.testing.assert_close(out, table[ids] + 1)
