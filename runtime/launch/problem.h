// Tensors as kernels see them, the tuning key of a problem and its computation, and the bounds on
// sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernel_templates/element_type.h"
#include "kernel_templates/registry.h"
#include "runtime/base/error.h"

namespace dorajit::launch {

struct DeviceId {
  kernels::DeviceKind kind = kernels::DeviceKind::kCpu;
  int ordinal = 0;

  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

// Rows x columns with contiguous columns. A tensor with one element per channel is one row with a
// column per channel. An operand that the caller leaves out has the element type kAbsent; its other
// fields are ignored.
struct TensorView {
  void* data = nullptr;
  kernels::ElementType type = kernels::ElementType::kFloat32;
  DeviceId device;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  // in elements; relevant for two rows or more
  // The sizes of all dimensions before flattening, for operands with is_exact. Borrowed for the
  // call.
  std::span<const std::int64_t> shape{};
  // Their strides in elements, of which none is negative; empty if the tensor is contiguous. Rows,
  // columns and row stride then say what memory the tensor has elements in.
  std::span<const std::int64_t> strides{};
};

struct Problem {
  kernels::Variant variant{};
  int vector_width = 1;  // alignment class: the widest vector that all operands allow
  // One entry per dimension of the operation. Exact: its size, at least 1 unless a scalar defines
  // it. Bucketed: the exponent b for sizes up to 2^b. Derived: 0.
  kernels::Sizes key{};

  // The largest sizes in the problem's buckets that are served and belong to its alignment class.
  [[nodiscard]] kernels::Sizes largest_sizes() const;
  friend bool operator==(const Problem&, const Problem&) = default;
};

// "OP/bf16,bf16,f32,bf16/v8/c4096/r12"
std::string to_text(const Problem& problem);

// The inverse of to_text(); nothing for other text and for sizes that check_size() refuses.
std::optional<Problem> parse_problem(std::string_view text);

// The key of a call with checked operands. Lookup and tuning use the same key.
Problem make_problem(const kernels::Variant& variant, const kernels::Sizes& sizes,
                     std::span<const TensorView> operands);

// The key of a call on contiguous, fully aligned tensors. Derived sizes may be omitted.
Problem make_problem(const kernels::Variant& variant, kernels::DeviceKind kind,
                     const kernels::Sizes& sizes);

// Maximum span of an operand in bytes: the address space of a process. Within it, neither products
// of sizes nor sums over all operands overflow 64 bits, even if rows are rounded up to a power of
// two.
inline constexpr std::int64_t kMaxOperandBytes = std::int64_t{1} << 47;

// Sets rows, columns and row stride of a tensor with strides and elements: as many and as short
// rows as its outermost dimensions have, so that column windows of one matrix do not overlap, or
// one row if its rows do. False for a negative stride, or more than 2^63 elements.
bool place_rows(TensorView& tensor);

// The bytes that a tensor spans, 0 without elements; nothing beyond kMaxOperandBytes. Sizes must
// not be negative.
std::optional<std::int64_t> span_bytes(const TensorView& tensor);

// kInvalidArgument for operands beyond kMaxOperandBytes, kUnsupported for sizes that the operation
// does not serve. Derived sizes may be omitted.
Status check_size(const kernels::Variant& variant, const kernels::Sizes& sizes);

// The same if all sizes of the problem's buckets exceed a limit.
Status check_size(const Problem& problem);

}  // namespace dorajit::launch
