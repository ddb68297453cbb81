// The composition without a fused kernel: four passes over memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel_templates/arguments.h"
#include "kernel_templates/registry.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::cli {

// Each pass is a kernel of its own with its default config: t = s*lora, t = g*t, u = (g-1)*base,
// out = t + u. t is in the output's memory, so one temporary, of the output's type, suffices.
class UnfusedPasses {
 public:
  // For matrices of those sizes. `device` must outlive this.
  static Result<UnfusedPasses> make(device::Device& device, launch::KernelCache& kernels,
                                    const kernels::Variant& compose, int vector_width,
                                    const kernels::Sizes& sizes);

  // Enqueues the passes on the operands of a `compose` launch.
  Status run(const kernels::KernelArguments& compose, device::Stream stream) const;

  // Of the temporary.
  static std::int64_t temporary_bytes(const kernels::Variant& compose, const kernels::Sizes& sizes);

 private:
  explicit UnfusedPasses(device::Device& device) : device_(&device) {}

  struct ReadyPass {
    launch::ReadyKernel kernel;
    std::vector<std::size_t> places;  // of its operands among compose's and, behind, the temporary
  };

  device::Device* device_;
  std::size_t temporary_place_ = 0;
  std::vector<ReadyPass> passes_;
  std::unique_ptr<device::Buffer> temporary_;
  long long row_stride_ = 0;
};

}  // namespace dorajit::cli
