// The gain of a layer and its divisor, from the weights; the C++ version of
// dorajit/norms/norm_kernel.py.
#pragma once

#include <optional>
#include <utility>

#include "call.h"

namespace dorajit::python {

// Whether the matrix has memory and elements, the elements of each row are contiguous, and rows do
// not overlap.
inline bool has_rows(const Tensor& matrix) {
  if (matrix.dim() != 2 || matrix.numel() == 0 || !is_plain(matrix)) return false;
  if (matrix.storage().nbytes() == 0) return false;  // FSDP frees weights between forward passes
  return (matrix.size(1) <= 1 || matrix.stride(1) == 1) &&
         (matrix.size(0) <= 1 || matrix.stride(0) >= matrix.size(1));
}

// (divisor, gain) for the rows of weight + scale * b @ a; nothing if Python must handle the call.
// The caller must not hold the GIL.
inline std::optional<std::pair<Tensor, Tensor>> compute_gain(const Tensor& weight, const Tensor& a,
                                                             const Tensor& b,
                                                             const Tensor& magnitude,
                                                             double scale) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (scale == 0 || !has_rows(weight) || !has_rows(a) || !has_rows(b)) return {};
  if (a.size(1) != weight.size(1) || b.size(0) != weight.size(0) || b.size(1) != a.size(0)) {
    return {};
  }
  if (magnitude.dim() != 1 || magnitude.size(0) != weight.size(0) || !magnitude.is_contiguous() ||
      !magnitude.has_storage() || magnitude.storage().nbytes() == 0) {
    return {};
  }
  const bool is_half = at::isReducedFloatingType(magnitude.scalar_type());
  const at::TensorOptions options =
      magnitude.options().dtype(is_half ? at::kFloat : magnitude.scalar_type());
  const Tensor gain = at::empty({weight.size(0)}, options);
  const Tensor divisor = at::empty({weight.size(0)}, options);
  const Tensor left_out;  // the norm, and its square
  static NativeOperation* const weight_norm = calls->find("weight_norm");
  if (!launch(weight_norm, scale,
              {&weight, &a, &b, &magnitude, &left_out, &left_out, &gain, &divisor})) {
    return {};
  }
  return std::pair(divisor, gain);
}

}  // namespace dorajit::python
