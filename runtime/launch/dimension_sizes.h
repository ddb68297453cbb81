// The sizes of a call's dimensions, as its tensors give them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernel_templates/sizes.h"
#include "runtime/base/error.h"
#include "runtime/launch/check_call.h"

namespace dorajit::launch {

// Whether the operand has one element per channel, of which the first operand says where it lies.
bool has_derived_size(const kernels::Operation& operation, const kernels::Operand& operand);

// Binds the dimensions of one operand after the other: the first that has a dimension gives its
// size, and the others must agree. The call has to outlive it.
class DimensionSizes {
 public:
  explicit DimensionSizes(const Call& call) : call_(call) {}

  // The dimensions of an operand that is there. Refuses a shape that does not go with its own
  // dimensions or with the operands before it.
  Status bind(std::size_t operand);

  // Those of every dimension. A dimension that no operand has is as large as the columns of the
  // first: without an operand per channel nothing tells how many there are, and no kernel asks.
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
};

}  // namespace dorajit::launch
