"""norm_assembly in Triton, with the paper's fixed block size."""

import triton
import triton.language as tl

_BLOCK_SIZE = 256


@triton.jit
def _norm_assembly_kernel(w_norm_sq, cross, ba_norm_sq, norm, two_s, s2, num_cols,
                          BLOCK_SIZE: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = cols < num_cols
    w = tl.load(w_norm_sq + cols, mask=mask, other=0).to(tl.float32)
    c = tl.load(cross + cols, mask=mask, other=0).to(tl.float32)
    ba = tl.load(ba_norm_sq + cols, mask=mask, other=0).to(tl.float32)
    square = tl.maximum((w + two_s * c) + s2 * ba, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(norm + cols, tl.sqrt_rn(square), mask=mask)


def norm_assembly(w_norm_sq, cross, ba_norm_sq, scale, norm):
    cols = norm.numel()
    # Without contraction every operation is rounded as in PyTorch's separate kernels. The paper
    # achieves this with stores and reloads between the operations, which cost time.
    _norm_assembly_kernel[(triton.cdiv(cols, _BLOCK_SIZE),)](
        w_norm_sq, cross, ba_norm_sq, norm, 2.0 * scale, scale * scale, cols,
        BLOCK_SIZE=_BLOCK_SIZE, num_warps=4, enable_fp_fusion=False)
