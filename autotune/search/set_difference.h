// Finds where two sets of scratch operands on a GPU differ, by a kernel.
#pragma once

#include <memory>
#include <span>

#include "autotune/search/scratch_operands.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"

namespace dorajit::autotune {

// Thread-compatible. The device must outlive it.
class SetDifference {
 public:
  // The kernel's variant, with the empty config: for compiling it ahead.
  static kernels::Variant variant();

  // Compiles and loads the kernel, or takes it from the artifact store. An error if that fails, or
  // on a CPU, whose memory the host reads at no cost.
  static Result<SetDifference> make(device::Device& device, launch::KernelCache& kernels);

  // As ScratchOperands::compare(), of a set of operands and the set that has what is expected.
  // `usual` has the usual size of each operand's expected elements.
  Result<ScratchOperands::Difference> find(const ScratchOperands& operands, std::int64_t set,
                                           std::int64_t expected,
                                           ScratchOperands::Closeness closeness,
                                           std::span<const double> usual) const;

 private:
  SetDifference(device::Device& device, launch::ReadyKernel kernel,
                std::unique_ptr<device::Buffer> found)
      : device_(&device), kernel_(std::move(kernel)), found_(std::move(found)) {}

  device::Device* device_;
  launch::ReadyKernel kernel_;
  std::unique_ptr<device::Buffer> found_;  // whether outputs, and whether other bytes, differ
};

}  // namespace dorajit::autotune
