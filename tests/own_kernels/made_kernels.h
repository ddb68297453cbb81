// Operations of own kernels for tests, and what descriptions are refused for.
#pragma once

#include <gmock/gmock.h>

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernel_templates/spaces.h"
#include "own_kernels/kernel.h"
#include "tests/own_kernels/descriptions.h"

namespace dorajit::tests {

inline const kernels::Operation& made(const Json& json) {
  const auto kernel = own_kernels::make_kernel(json.dump());
  if (!kernel) throw std::runtime_error(kernel.error().message);
  return **kernel;
}

inline kernels::Variant variant_of(const kernels::Operation& operation,
                                   kernels::ElementType type = kernels::ElementType::kFloat32) {
  kernels::Variant variant{.operation = &operation};
  for (std::size_t i = 0; i < operation.operands.size(); ++i) variant.types[i] = type;
  return variant;
}

inline constexpr kernels::SpaceTraits kHopper{
    .kind = kernels::DeviceKind::kCuda, .processors = 132, .architecture = 90};

inline std::string refusal_of(const Json& json) {
  const auto kernel = own_kernels::make_kernel(json.dump());
  EXPECT_FALSE(kernel) << json.dump();
  return kernel ? std::string() : kernel.error().message;
}

struct Refusal {
  std::vector<Change> changes;
  const char* message;
};

// Each change of the description is refused with a message that has this part.
inline void expect_refusals(const Json& json, std::initializer_list<Refusal> refusals) {
  for (const auto& [changes, message] : refusals) {
    EXPECT_THAT(refusal_of(with(json, changes)), testing::HasSubstr(message));
  }
}

}  // namespace dorajit::tests
