// The weights that a node needs in its backward pass: what dorajit/layers/held_weights.py does in
// Python.
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

// Holds the parameters among a layer's weight, A and B, which live as long as their module. The
// node saves the others. A checkpoint calls two hooks for each tensor that is saved, and none for
// those that are held.
class HeldWeights {
 public:
  using Weights = std::array<Tensor, 3>;

  HeldWeights(Weights weights, std::array<bool, 3> is_held)
      : weights_(std::move(weights)), is_held_(is_held) {}

  // Those that are not held, undefined in the places of those that are.
  [[nodiscard]] std::vector<Tensor> others() const {
    std::vector<Tensor> found(weights_.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!is_held_[i]) found[i] = weights_[i];
    }
    return found;
  }

  void keep(torch::autograd::AutogradContext& ctx) const {
    // Autograd compares no versions of tensors that hooks saved either: a checkpoint runs the
    // forward pass again with the weights as they are then.
    const bool are_compared = at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (!is_held_[i]) continue;
      ctx.saved_data[kHeld[i]] = weights_[i];
      if (are_compared) {
        ctx.saved_data[kVersions[i]] = static_cast<std::int64_t>(weights_[i]._version());
      }
    }
  }

  // All of them in their order: `saved` begins with the others. Throws if one was written since, as
  // for a tensor that was saved.
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
      // Those that compiled autograd traces have versions of their own.
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
