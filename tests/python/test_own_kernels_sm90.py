"""Own kernels with clusters, cooperative grids, tensor maps, float8 and optional tensors."""

import json

import pytest
import torch

import dorajit

SOURCE = """template <int BLOCK>
__global__ void biased(const T* x, const T* bias, T* out, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i < n) out[i] = static_cast<float>(x[i]) + (bias != nullptr ? static_cast<float>(bias[i]) : 0.0f);
}
"""
CLUSTER_SOURCE = """__global__ void ranks(int* out, int n) {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  out[blockIdx.x] = rank;
}
"""
GRID_SOURCE = """__global__ void meet(unsigned* out, unsigned* arrived, int n) {
  if (blockIdx.x == 0) *arrived = 0;
}
__global__ void wait_for_all(unsigned* out, unsigned* arrived, int n) {
  atomicAdd(arrived, 1u);
  while (*static_cast<volatile unsigned*>(arrived) < gridDim.x) {}
  out[blockIdx.x] = *static_cast<volatile unsigned*>(arrived);
}
"""

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
needs_sm90 = pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
                                reason="no CUDA device of compute capability 9.0")


def make(types=("float32", "bfloat16", "float8_e4m3fn", "float8_e5m2"), **changes):
    return dorajit.Kernel(**{
        "name": "biased", "source": SOURCE, "entry": "biased<BLOCK>",
        "arguments": [("x", "in", "T[n]"), ("bias", "in", "T[n]?"), ("out", "out", "T[n]"), ("n", "int64")],
        "types": {"T": types}, "parameters": {"BLOCK": [64, 128, 256]}, "default": {"BLOCK": 128},
        "grid": "ceil_div(n, BLOCK)", "block": "BLOCK", "key": ["T", "bucket(n)"], **changes})


@pytest.mark.parametrize("changes, message", [
    ({"cluster": [1, 1, 1, 1]}, '"cluster" has not 1 to 3 expressions'),
    ({"cooperative": "yes"}, '"cooperative" is neither true nor false'),
    ({"arguments": [("x", "in", "T[n]"), ("out", "out", "T[n]"), ("x_map", "tensor_map", {"of": "y", "box": [64]})]},
     "the tensor map `x_map` of `y`, which is no tensor"),
    ({"arguments": [("x", "in", "T[n]?"), ("out", "out", "T[n]")]}, "`x` is optional"),
])
def test_a_wrong_description_is_refused_by_the_field(changes, message):
    with pytest.raises(dorajit.InvalidArgumentError, match=message):
        make(**changes)


def test_a_call_does_not_name_tensor_maps():
    kernel = make(arguments=[("x", "in", "T[n]"), ("bias", "in", "T[n]?"), ("out", "out", "T[n]"), ("n", "int64"),
                             ("x_map", "tensor_map", {"of": "x", "box": ["BLOCK"]})])
    with pytest.raises(TypeError, match="biased takes 4 arguments, not 5"):
        kernel(torch.ones(4), None, torch.ones(4), 4, None)
    assert json.loads(dorajit.Kernel.from_json(kernel.to_json()).to_json()) == json.loads(kernel.to_json())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_tensors_are_read(dtype):
    # It was read, and then refused as what it is.
    with pytest.raises(dorajit.WrongDeviceError, match="argument `x` is on the CPU"):
        make()(torch.ones(4).to(dtype), None, torch.ones(4).to(dtype), 4)
    with pytest.raises(dorajit.UnsupportedError, match="argument `x` takes elements of T"):
        make(types=["float32"])(torch.ones(4).to(dtype), None, torch.ones(4).to(dtype), 4)


def test_only_optional_tensors_may_be_none():
    with pytest.raises(dorajit.WrongDeviceError, match="argument `x` is on the CPU"):
        make()(torch.ones(4), None, torch.ones(4), 4)
    with pytest.raises(dorajit.UnsupportedError, match="argument `out` is no dense tensor .* but a NoneType"):
        make()(torch.ones(4), None, None, 4)


def test_an_operator_has_optional_tensors():
    op = make().as_torch_op("dorajit_tests::biased", shapes={"out": lambda x, bias, n: x.shape})
    assert str(torch.ops.dorajit_tests.biased.default._schema) == (
        "dorajit_tests::biased(Tensor x, Tensor? bias, int n) -> Tensor")
    with torch._subclasses.FakeTensorMode():
        assert op(torch.empty(3, device="cuda"), None, 3).shape == (3,)


def test_the_matrix_product_is_described_by_a_file(examples):
    assert examples.matmul.name == "matmul" and "a_map" not in repr(examples.matmul)


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("has_bias", [True, False])
def test_what_is_left_out_is_null(dtype, has_bias):
    x, bias = (torch.randn(2, 5008, device="cuda") / 4).to(dtype)
    out = torch.empty_like(x)
    make()(x, bias if has_bias else None, out, 5008)
    expected = (x.float() + bias.float() if has_bias else x.float()).to(dtype)
    assert torch.equal(out.float(), expected.float())


@needs_cuda
def test_every_float8_is_converted_as_pytorch_does():
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        every = torch.arange(256, device="cuda", dtype=torch.uint8).view(dtype)
        every = every[every.float().isfinite()]
        out = torch.empty_like(every)
        make()(every, None, out, every.numel())
        assert torch.equal(out.float(), every.float())


@needs_sm90
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_blocks_know_their_cluster(size):
    kernel = dorajit.Kernel(name="ranks", source=CLUSTER_SOURCE, entry="ranks", arguments=[
        ("out", "out", "int32[n]"), ("n", "int32")], grid="n", block=32, cluster=size)
    out = torch.empty(16, device="cuda", dtype=torch.int32)
    kernel(out, 16)
    assert torch.equal(out.cpu(), torch.arange(16, dtype=torch.int32) % size)


@needs_cuda
def test_a_cooperative_grid_runs_at_once():
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    kernel = dorajit.Kernel(name="meet", source=GRID_SOURCE, arguments=[
        ("out", "out", "uint32[n]"), ("arrived", "workspace", "uint32[1]"), ("n", "int32")],
        launches=[{"entry": "meet", "grid": 1, "block": 1},
                  {"entry": "wait_for_all", "grid": "n", "block": 1, "cooperative": True}])
    out = torch.empty(blocks, device="cuda", dtype=torch.uint32)
    kernel(out, blocks)
    assert (out.cpu().to(torch.int64) == blocks).all()
    with pytest.raises(dorajit.InvalidArgumentError, match="its cooperative grid has .* blocks"):
        kernel(torch.empty(40 * blocks, device="cuda", dtype=torch.uint32), 40 * blocks)


@needs_sm90
@pytest.mark.parametrize("m, n, k", [(4096, 4096, 4096), (1, 2, 8), (100, 130, 72), (257, 1024, 4104)])
def test_the_matrix_product_matches_pytorch(examples, m, n, k):
    explanation, error = examples.run("matmul", m=m, n=n, k=k)
    assert explanation["config"] and error < 2.0 ** -7
