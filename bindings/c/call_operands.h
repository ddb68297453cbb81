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

struct Operands {
  std::array<launch::TensorView, kernels::kMaxOperands> views;
  kernels::Broadcast broadcast = kernels::Broadcast::kPerColumn;
};

// From `tensors` in the registry's order; null for what is left out.
Result<Operands> operands_from_dlpack(const kernels::OpSpec& spec,
                                      std::span<const DLTensor* const> tensors);

// What serves a call, its tensors in the registry's order: of the residual forms of the composition
// the one with a bias or the one without.
class ServedCall {
 public:
  ServedCall(kernels::Op op, std::span<const DLTensor* const> tensors) : op_(op) {
    constexpr std::size_t kBias = 3;
    const bool has_no_bias = op == kernels::Op::kComposeBiasedResidual && tensors[kBias] == nullptr;
    if (has_no_bias) op_ = kernels::Op::kComposeResidual;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!has_no_bias || i != kBias) tensors_[count_++] = tensors[i];
    }
  }

  [[nodiscard]] kernels::Op op() const { return op_; }
  [[nodiscard]] std::span<const DLTensor* const> tensors() const {
    return std::span(tensors_).first(count_);
  }

 private:
  kernels::Op op_;
  std::array<const DLTensor*, kernels::kMaxOperands> tensors_{};
  std::size_t count_ = 0;
};

}  // namespace dorajit::bindings
