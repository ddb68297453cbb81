// The sizes of a call's dimensions, as its tensors give them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernel_templates/sizes.h"
#include "runtime/base/error.h"
#include "runtime/launch/check_call.h"

namespace dorajit::launch {

// Whether the operand has one element per channel: its dimension is derived from two others.
bool has_derived_size(const kernels::Operation& operation, const kernels::Operand& operand);

// Binds the dimensions of one operand after the other: the first that has a dimension gives its
// size, and the others must agree. The call has to outlive it.
class DimensionSizes {
 public:
  explicit DimensionSizes(const Call& call) : call_(call) {}

  // The dimensions of an operand that is there. Refuses a shape that does not go with its own
  // dimensions or with the operands before it.
  Status bind(std::size_t operand);

  // Those of every dimension. Of a dimension whose operands are all left out nothing is known, and
  // no kernel asks: a derived one is as large as with_derived() has it, another 0.
  [[nodiscard]] kernels::Sizes all() const;

 private:
  [[nodiscard]] bool is_bound(int dimension) const;
  Status bind_dimension(std::size_t operand, int dimension, std::int64_t size);
  Status bind_channels(std::size_t operand);
  [[nodiscard]] std::unexpected<Error> refuse_size(std::size_t operand, int dimension,
                                                   std::int64_t size) const;

  const Call& call_;
  kernels::Sizes sizes_{};
  std::array<int, kernels::kMaxDimensions> bound_by_{-1, -1, -1};  // an operand; -1 before
  static_assert(kernels::kMaxDimensions == 3);
};

}  // namespace dorajit::launch
