// The tuning key, and the one function that computes it.
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
  int vector_width = 1;  // alignment class: the widest vector that the operands allow
  // By dimension of the operation: of an exact one its size, but at least 1; of a bucketed one the
  // exponent b of sizes up to 2^b; of a derived one 0.
  kernels::Sizes key{};

  // The largest sizes that the problem covers.
  [[nodiscard]] kernels::Sizes largest_sizes() const;
  friend bool operator==(const Problem&, const Problem&) = default;
};

// "OP/bf16,bf16,f32,bf16/v8/c4096/r12"
std::string to_text(const Problem& problem);

// The inverse; nothing for text that to_text() does not produce, nor for sizes that check_size()
// refuses.
std::optional<Problem> parse_problem(std::string_view text);

// The key of a call whose operands were checked. The same for lookup and for tuning.
Problem make_problem(const kernels::Variant& variant, const kernels::Sizes& sizes,
                     std::span<const TensorView> operands);

// The key of a call on contiguous tensors with fully aligned data. Derived sizes need not be given.
Problem make_problem(const kernels::Variant& variant, kernels::DeviceKind kind,
                     const kernels::Sizes& sizes);

}  // namespace dorajit::launch
