// The sizes of a call's dimensions, derived from its tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernel_templates/sizes.h"
#include "runtime/base/error.h"
#include "runtime/launch/check_call.h"

namespace dorajit::launch {

// The error of a refused operand: "OP: argument `x` is missing; pass a tensor"; `what` is its end.
std::unexpected<Error> refuse(StatusCode code, const kernels::Operation& operation,
                              const kernels::Operand& operand, std::string_view what);

// Whether the operand has one element per channel: its dimension is derived from two others.
bool has_derived_size(const kernels::Operation& operation, const kernels::Operand& operand);

// Binds the dimensions of the operands in order: the first operand with a dimension defines its
// size, and later operands must agree. The call must outlive this object.
class DimensionSizes {
 public:
  explicit DimensionSizes(const Call& call) : call_(call) { bound_by_.fill(kNothing); }

  // Binds the dimensions that scalars define. Call it first. Refuses values that are not sizes.
  Status bind_scalars();

  // Binds the dimensions of an operand that is present. Refuses a shape that contradicts its own
  // dimensions or earlier operands.
  Status bind(std::size_t operand);

  // The sizes of all dimensions. If all operands of a dimension are left out, no kernel reads its
  // size: a derived one is computed by with_derived(), another one is 0. Refuses a tensor whose
  // size is not what is computed from the others.
  [[nodiscard]] Result<kernels::Sizes> all() const;

 private:
  [[nodiscard]] bool is_bound(int dimension) const;
  Status bind_dimension(std::size_t operand, int dimension, std::int64_t size);
  Status bind_channels(std::size_t operand);
  Status bind_exactly(std::size_t operand);
  Status bind_strides(std::size_t operand);
  [[nodiscard]] std::unexpected<Error> refuse_size(std::size_t operand, int dimension,
                                                   std::int64_t size) const;

  const Call& call_;
  kernels::Sizes sizes_{};
  std::array<int, kernels::kMaxSizes> bound_by_;  // index of an operand, or one of these:
  static constexpr int kNothing = -1;
  static constexpr int kScalar = -2;
};

}  // namespace dorajit::launch
