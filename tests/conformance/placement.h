// Placements: which outputs use the memory of which inputs.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "kernel_templates/registry.h"

namespace dorajit::tests {

struct Placement {
  // For each output, the input whose memory it shares.
  std::array<std::optional<std::size_t>, kernels::kMaxOperands> over{};

  // The output that is written to this operand's memory, if any.
  [[nodiscard]] std::optional<std::size_t> output_at(const kernels::Variant& variant,
                                                     std::size_t operand) const;
};

// Out of place; every matrix output over every matrix input of its type; every pair of outputs over
// two different inputs.
std::vector<Placement> placements(const kernels::Variant& variant);

std::string to_text(const kernels::Variant& variant, const Placement& placement);

}  // namespace dorajit::tests
