"""Kernels of the user's own over tensors that are not contiguous; on a GPU also what they compute."""

import json
import types

import dorajit
import pytest
import torch
from reference import needs_gpu

STRIDED = {
    "name": "scale_rows", "source": """template <int BLOCK>
__global__ void scale_rows(const T* x, T* out, long long rows, long long cols, long long x_stride) {
  for (long long c = threadIdx.x; c < cols; c += BLOCK) {
    out[blockIdx.x * cols + c] = T(2) * x[blockIdx.x * x_stride + c];
  }
}
""",
    "entry": "scale_rows<BLOCK>",
    "arguments": [("x", "in", "T[rows:x_stride, cols]"), ("out", "out", "T[rows, cols]"), ("rows", "int64"),
                  ("cols", "int64"), ("x_stride", "int64")],
    "types": {"T": ["float32", "bfloat16"]}, "parameters": {"BLOCK": [64, 128, 256]}, "default": {"BLOCK": 128},
    "grid": "rows", "block": "BLOCK", "key": ["T", "bucket(rows)", "cols"]}


def matrix_of(vector, shape, strides):
    """The vector as a matrix."""
    return types.SimpleNamespace(**{**vars(vector), "shape": shape, "stride": lambda: strides})


def test_strides_are_read_and_compared(vector):
    kernel, out = dorajit.Kernel(**STRIDED), matrix_of(vector, (4, 8), (8, 1))
    with pytest.raises(dorajit.InvalidArgumentError, match="`x` has 64 `x_stride` but argument `x_stride` is 8; give"):
        kernel.explain(matrix_of(vector, (4, 8), (64, 1)), out, 4, 8, 8)
    with pytest.raises(dorajit.InvalidArgumentError, match="`x` has a stride of 2 elements along `cols`, which is"):
        kernel.explain(matrix_of(vector, (4, 8), (64, 2)), out, 4, 8, 64)
    with pytest.raises(dorajit.InvalidArgumentError, match="`out` has a stride of 64 elements along `rows`, which is"):
        kernel.explain(out, matrix_of(vector, (4, 8), (64, 1)), 4, 8, 8)
    contiguous = dorajit.Kernel(**{**STRIDED, "arguments": [("x", "in", "T[rows, cols]"), *STRIDED["arguments"][1:4],
                                                            ("x_stride", "int64", 1)]})
    with pytest.raises(dorajit.InvalidArgumentError, match="`x` has a stride of 64 .* as in \"T.rows:stride, cols.\""):
        contiguous.explain(matrix_of(vector, (4, 8), (64, 1)), out, 4, 8, 64)


def test_a_description_keeps_strides_and_alignment():
    kernel = dorajit.Kernel(**STRIDED, unaligned=["x"])
    again = dorajit.Kernel.from_json(kernel.to_json())
    assert json.loads(again.to_json()) == json.loads(kernel.to_json())
    assert json.loads(kernel.to_json())["unaligned"] == ["x"] and "x in T[rows:x_stride, cols]" in repr(kernel)


def test_an_operator_with_strides_needs_exactly_these():
    op = dorajit.Kernel(**STRIDED).as_torch_op("dorajit_tests::scale_rows",
                                               shapes={"out": lambda x, rows, cols, x_stride: x.shape})
    assert torch.Tag.needs_exact_strides in torch.ops.dorajit_tests.scale_rows.default.tags
    with torch._subclasses.FakeTensorMode():
        x = torch.empty_strided((4, 8), (64, 1), device="cuda")
        assert op(x, 4, 8, x.stride(0)).stride() == (8, 1)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_views_are_computed(dtype):
    kernel = dorajit.Kernel(**STRIDED)
    whole = torch.randn(300, 4096, device="cuda", dtype=dtype)
    out = torch.empty(300, 96, device="cuda", dtype=dtype)
    for x in (whole[:, :96], whole[:, 128:224], whole[:1, :96].expand(300, 96), whole[:, :96].contiguous()):
        assert kernel.tune(x, out, 300, 96, x.stride(0))["source"] in ("tuned", "user database")
        kernel(x, out, 300, 96, x.stride(0))
        assert torch.equal(out, x * 2)
