// Converts the tensors of a C ABI call to the operands of an operation.
#pragma once

#include <dlpack/dlpack.h>

#include <array>
#include <span>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"
#include "runtime/launch/problem.h"

namespace dorajit::bindings {

struct Operands {
  std::array<launch::TensorView, kernels::kMaxOperands> views;
  kernels::Broadcast broadcast = kernels::Broadcast::kPerColumn;

  // Reads tensors in the order of the operation's operands; null stands for an operand that is left
  // out. The operands are not returned, because every call would copy them twice.
  Status read(const kernels::Operation& operation, std::span<const DLTensor* const> tensors);
};

}  // namespace dorajit::bindings
