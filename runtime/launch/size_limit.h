// The bounds on sizes, used by every entry point.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/launch/problem.h"
#include "runtime/launch/tensor_view.h"

namespace dorajit::launch {

// Maximum span of an operand in bytes: the address space of a process. Within it, neither products
// of sizes nor sums over all operands overflow 64 bits, even if rows are rounded up to a power of
// two.
inline constexpr std::int64_t kMaxOperandBytes = std::int64_t{1} << 47;

// The bytes that a tensor spans, 0 without elements; nothing beyond kMaxOperandBytes. Sizes must
// not be negative.
std::optional<std::int64_t> span_bytes(const TensorView& tensor);

// kInvalidArgument for operands beyond kMaxOperandBytes, kUnsupported for sizes that the operation
// does not serve. Derived sizes may be omitted.
Status check_size(const kernels::Variant& variant, const kernels::Sizes& sizes);

// The same if all sizes of the problem's buckets exceed a limit.
Status check_size(const Problem& problem);

}  // namespace dorajit::launch
