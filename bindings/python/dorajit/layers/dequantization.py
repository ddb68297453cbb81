"""The weights of bitsandbytes' 4-bit layers on a GPU, dequantized in one launch.

bitsandbytes takes three launches, of several Python operators, for a weight whose scales are quantized, too. Here each
weight is a level times the scale of its block, and a scale is 8 bits of a table times the scale of its group, plus an
offset (arXiv:2305.14314, section 3). Each step is rounded as by bitsandbytes, so that no bit of the weight differs.
"""

import functools

from dorajit import errors
from dorajit.control import state
from dorajit.operations import recording
from dorajit.own_kernels import Kernel

_WEIGHTS = 16  # of a thread
_BLOCK = 256
_SOURCE = """
// The levels of 4-bit NormalFloat, and of a float with a sign, two bits of exponent and one of mantissa over 12.
__device__ const float kLevels[2][16] = {
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
     -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f,
     0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f},
    {0.0f, 1.0f / 192, 2.0f / 3, 1.0f, 1.0f / 3, 0.5f, 1.0f / 6, 0.25f,
     -0.0f, -1.0f / 192, -2.0f / 3, -1.0f, -1.0f / 3, -0.5f, -1.0f / 6, -0.25f}};

struct alignas(16) Word {
  T elements[16 / sizeof(T)];
};

// A byte holds two weights, the first one in its upper half. Blocks and groups have powers of two of elements.
template <int THREADS, int WEIGHTS>
__global__ void __launch_bounds__(THREADS)
    dequantize_4bit(const unsigned char* packed, SCALE_PARAMETERS T* out, long long rows, long long cols,
                    int is_fp4, int log2_block, int log2_group) {
  __shared__ float levels[16];
  if (threadIdx.x < 16) levels[threadIdx.x] = kLevels[is_fp4][threadIdx.x];
  __syncthreads();
  const long long n = rows * cols;
  const long long first = (static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x) * WEIGHTS;
  if (first >= n) return;
  const long long block = first >> log2_block;
  const float scale = SCALE;
  constexpr int kPerWord = 16 / sizeof(T);
  if (first + WEIGHTS <= n) {
    const uint2 bytes = *reinterpret_cast<const uint2*>(packed + first / 2);
    Word words[WEIGHTS / kPerWord];
#pragma unroll
    for (int i = 0; i < WEIGHTS; ++i) {
      const unsigned half = (i < 8 ? bytes.x : bytes.y) >> (i % 8 / 2 * 8 + (i % 2 == 0 ? 4 : 0));
      words[i / kPerWord].elements[i % kPerWord] = __fmul_rn(levels[half & 15], scale);
    }
#pragma unroll
    for (int i = 0; i < WEIGHTS / kPerWord; ++i) reinterpret_cast<Word*>(out + first)[i] = words[i];
    return;
  }
  for (long long i = first; i < n; ++i) {
    out[i] = __fmul_rn(levels[packed[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15], scale);
  }
}
"""
# Whether scales are quantized -> (their arguments, in C++ and as described, the scale of `block`)
_SCALES = {
    False: ("const float* scales,", [("scales", "in", "float32[blocks]")], "scales[block]"),
    True: ("const unsigned char* scales, const float* table, const float* group_scales, const float* offset,",
           [("scales", "in", "uint8[blocks]"), ("table", "in", "float32[entries]"),
            ("group_scales", "in", "float32[groups]"), ("offset", "in", "float32[one]")],
           "__fadd_rn(__fmul_rn(table[scales[block]], group_scales[block >> log2_group]), offset[0])"),
}


@functools.cache
def _kernel(is_nested):
    parameters, arguments, scale = _SCALES[is_nested]
    return Kernel(
        name="dequantize_4bit_nested" if is_nested else "dequantize_4bit",
        source=_SOURCE.replace("SCALE_PARAMETERS", parameters).replace("SCALE;", scale + ";"),
        entry=f"dequantize_4bit<{_BLOCK}, {_WEIGHTS}>",
        arguments=[("packed", "in", "uint8[bytes, columns]"), *arguments, ("out", "out", "T[rows, cols]"),
                   ("rows", "int64"), ("cols", "int64"), ("is_fp4", "int32"), ("log2_block", "int32"),
                   ("log2_group", "int32")],
        types={"T": ["bfloat16", "float16", "float32"]},
        grid=f"ceil_div(rows * cols, {_BLOCK * _WEIGHTS})", block=str(_BLOCK))


def weight_of(data, quantized):
    """bitsandbytes.functional.dequantize_4bit for packed weights, [bytes, 1] of uint8, and their QuantState, of a matrix;
    None for tensors that the kernel does not take, and if it cannot be launched."""
    if not (state.enabled and recording.is_cuda(data) and data.shape[1:] == (1,)):
        return None
    of_scales, scales, log2_group = quantized.state2, (quantized.absmax,), 0
    if quantized.nested:
        scales = quantized.absmax, of_scales.code, of_scales.absmax, quantized.offset.view(1)
        log2_group = of_scales.blocksize.bit_length() - 1
    out = data.new_empty(quantized.shape, dtype=quantized.dtype)
    try:
        _kernel(quantized.nested)(data, *scales, out, *out.shape, int(quantized.quant_type == "fp4"),
                                  quantized.blocksize.bit_length() - 1, log2_group)
    except (errors.Error, TypeError, ValueError):
        return None
    return out
