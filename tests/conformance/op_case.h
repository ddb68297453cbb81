// One call of any operation, with everything that determines its result, and the expected result.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernel_templates/registry.h"
#include "runtime/device/device.h"
#include "runtime/launch/kernel_cache.h"
#include "tests/conformance/host_tensor.h"
#include "tests/conformance/placement.h"

namespace dorajit::tests {

struct OperandLayout {
  std::int64_t row_padding = 0;
  int misalignment = 0;
};

struct CaseSpec {
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  std::int64_t channels = 1;  // for channels along the rows; divides the rows
  std::array<OperandLayout, kernels::kMaxOperands> layouts{};
  double scale = 0.75;
  Values matrices{};
  Values gains{};
  unsigned seed = 1;

  // Uses the same layout for all operands.
  CaseSpec& laid_out(std::int64_t row_padding, int misalignment);
};

std::string to_text(const CaseSpec& spec);

// The widest vectors of a config that may run the case.
int vector_width(const kernels::Variant& variant, const CaseSpec& spec, kernels::DeviceKind kind);

// The operands and the workspace of a case on a device, reused in several runs.
struct OpBuffers {
  std::array<std::unique_ptr<device::Buffer>, kernels::kMaxOperands> memory;
  // Whether the buffer has the case's contents.
  std::array<bool, kernels::kMaxOperands> is_current{};
  std::unique_ptr<device::Buffer> workspace;
};

class OpCase {
 public:
  OpCase(const kernels::Variant& variant, const CaseSpec& spec);

  // Empty if the kernel wrote exactly the right bits and nothing else; otherwise what is wrong.
  // `buffers` starts empty and belongs to this case and device.
  std::string run(device::Device& device, const launch::ReadyKernel& kernel,
                  const Placement& placement, OpBuffers& buffers) const;

 private:
  template <class T>
  void evaluate();
  template <class T>
  [[nodiscard]] T value(std::size_t operand, std::int64_t row, std::int64_t col) const;
  [[nodiscard]] std::size_t workspace_bytes() const;

  Status upload(device::Device& device, OpBuffers& buffers) const;
  Status launch(device::Device& device, const launch::ReadyKernel& kernel,
                const Placement& placement, OpBuffers& buffers) const;
  Result<std::string> check(device::Device& device, const Placement& placement,
                            const OpBuffers& buffers) const;
  [[nodiscard]] std::string compare(std::size_t operand, std::size_t output,
                                    HostTensor result) const;

  kernels::Variant variant_;
  CaseSpec spec_;
  std::vector<HostTensor> tensors_;   // one per operand
  std::vector<HostTensor> expected_;  // one per output, with canonical NaNs and without padding
};

}  // namespace dorajit::tests
