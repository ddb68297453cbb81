// The one bound on the sizes of operands, for every way in.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/launch/problem.h"
#include "runtime/launch/tensor_view.h"

namespace dorajit::launch {

// What an operand may span from its first byte to its last: all that a process can address. Within
// it neither the products of sizes nor the sums over all operands overflow 64 bits, also where rows
// are rounded up to a power of two.
inline constexpr std::int64_t kMaxOperandBytes = std::int64_t{1} << 47;

// The bytes that a tensor spans, 0 without elements; nothing beyond kMaxOperandBytes. Sizes are
// not negative.
std::optional<std::int64_t> span_bytes(const TensorView& tensor);

// kInvalidArgument for operands beyond kMaxOperandBytes. Derived sizes need not be given.
Status check_size(const kernels::Variant& variant, const kernels::Sizes& sizes);

// The same for a problem that only such operands have.
Status check_size(const Problem& problem);

}  // namespace dorajit::launch
