// Variants for tests in which any variant would do.
#pragma once

#include "kernel_templates/registry.h"

namespace dorajit::tests {

// compose in f32.
inline kernels::Variant float_compose() {
  return {.operation = &kernels::operation("compose"), .types = {}};
}

}  // namespace dorajit::tests
