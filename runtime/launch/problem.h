// The tuning key of a problem, and its computation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernel_templates/registry.h"
#include "runtime/launch/tensor_view.h"

namespace dorajit::launch {

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

}  // namespace dorajit::launch
