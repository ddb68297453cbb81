// The weights that a node needs in its backward pass; the C++ version of
// dorajit/layers/held_weights.py.
#pragma once

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "call.h"

namespace dorajit::python {

// Holds references to those of a layer's weight, A and B that are parameters, which live as long as
// their module. The node saves the others. A checkpoint calls two hooks for each saved tensor, and
// none for those that are held.
class HeldWeights {
 public:
  using Weights = std::array<Tensor, 3>;

  HeldWeights(Weights weights, std::array<bool, 3> is_held)
      : weights_(std::move(weights)), is_held_(is_held) {}

  // The weights that are not held; undefined in the places of those that are.
  [[nodiscard]] std::vector<Tensor> others() const {
    std::vector<Tensor> found(weights_.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!is_held_[i]) found[i] = weights_[i];
    }
    return found;
  }

  void keep(torch::autograd::AutogradContext& ctx) const {
    // Under saved-tensor hooks versions are not compared, as autograd does not either: a checkpoint
    // runs the forward pass again with the present weights.
    const bool are_compared = at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (!is_held_[i]) continue;
      ctx.saved_data[kHeld[i]] = weights_[i];
      if (are_compared) {
        ctx.saved_data[kVersions[i]] = static_cast<std::int64_t>(weights_[i]._version());
      }
    }
  }

  // All weights in their order; `saved` begins with those that are not held. Throws if a held one
  // was written since the forward pass, as autograd does for saved tensors.
  static Weights all(torch::autograd::AutogradContext& ctx, const std::vector<Tensor>& saved) {
    Weights found;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto held = ctx.saved_data.find(kHeld[i]);
      if (held == ctx.saved_data.end()) {
        found[i] = saved[i];
        continue;
      }
      found[i] = held->second.toTensor();
      const auto version = ctx.saved_data.find(kVersions[i]);
      // Tensors that compiled autograd traces have other versions.
      if (version == ctx.saved_data.end() || !is_plain(found[i])) continue;
      const auto now = static_cast<std::int64_t>(found[i]._version());
      TORCH_CHECK(now == version->second.toInt(), "dora_linear: argument `", kNames[i],
                  "`, which its gradients need, was modified by an inplace operation: it is at "
                  "version ",
                  now, ", expected is version ", version->second.toInt(),
                  "; write to it after the backward pass, or to a copy");
    }
    return found;
  }

 private:
  static constexpr std::array<const char*, 3> kNames = {"weight", "lora_A", "lora_B"};
  static constexpr std::array<const char*, 3> kHeld = {"held weight", "held A", "held B"};
  static constexpr std::array<const char*, 3> kVersions = {"weight's version", "A's version",
                                                           "B's version"};

  Weights weights_;
  std::array<bool, 3> is_held_;
};

}  // namespace dorajit::python
