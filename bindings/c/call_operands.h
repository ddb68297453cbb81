// The tensors of a call through the C ABI as the operands of an operation.
#pragma once

#include <dlpack/dlpack.h>

#include <array>
#include <cstddef>
#include <span>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"
#include "runtime/launch/tensor_view.h"

namespace dorajit::bindings {

// Whether an operand is an input with one element per channel.
bool is_input_per_channel(const kernels::Operation& operation, std::size_t operand);

struct Operands {
  std::array<launch::TensorView, kernels::kMaxOperands> views;
  kernels::Broadcast broadcast = kernels::Broadcast::kPerColumn;
};

// From `tensors` in the order of the operation's operands; null for what is left out.
Result<Operands> operands_from_dlpack(const kernels::Operation& operation,
                                      std::span<const DLTensor* const> tensors);

}  // namespace dorajit::bindings
