// Variants and devices for tests.
#pragma once

#include <set>
#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/spaces.h"

namespace dorajit::tests {

// compose in f32.
inline kernels::Variant float_compose() {
  return {.operation = &kernels::operation("compose"), .types = {}};
}

inline kernels::Variant low_rank(kernels::ElementType factor, kernels::ElementType result) {
  using enum kernels::ElementType;
  return {.operation = &kernels::operation("compose_low_rank"),
          .types = {factor, factor, result, kFloat32, kAbsent, result, kAbsent}};
}

inline kernels::Variant weight_norm(kernels::ElementType weight, kernels::ElementType a,
                                    kernels::ElementType b) {
  using enum kernels::ElementType;
  const kernels::ElementType norm = weight == kFloat64 ? kFloat64 : kFloat32;
  return {.operation = &kernels::operation("weight_norm"),
          .types = {weight, a, b, kAbsent, norm, kAbsent, kAbsent}};
}

inline kernels::SpaceTraits gpu(int architecture) {
  return {.kind = kernels::DeviceKind::kCuda, .processors = 132, .architecture = architecture};
}

// The instructions of the configs of a template that has several.
inline std::set<int> instructions_of(const std::vector<kernels::Config>& space) {
  std::set<int> found;
  for (const kernels::Config& config : space) found.insert(config['i']);
  return found;
}

}  // namespace dorajit::tests
