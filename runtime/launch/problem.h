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
  int vector_width = 1;       // alignment class: the widest vector that every operand allows
  std::int64_t num_cols = 0;  // exact, but at least 1
  int row_bucket = 0;         // the number of rows is at most 2^row_bucket

  [[nodiscard]] std::int64_t bucket_rows() const { return std::int64_t{1} << row_bucket; }
  friend bool operator==(const Problem&, const Problem&) = default;
};

// "compose/bf16,bf16,f32,bf16/v8/c4096/r12"
std::string to_text(const Problem& problem);

// The inverse; nothing for text that to_text() does not produce, nor for sizes that check_size()
// refuses.
std::optional<Problem> parse_problem(std::string_view text);

// The key of a call whose operands were checked. The same for lookup and for tuning.
Problem make_problem(const kernels::Variant& variant, std::span<const TensorView> operands);

// The key of a call on contiguous tensors with fully aligned data.
Problem make_problem(const kernels::Variant& variant, kernels::DeviceKind kind,
                     std::int64_t num_rows, std::int64_t num_cols);

}  // namespace dorajit::launch
