// One call of compose with everything that decides its result, and the result it must have.
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

namespace dorajit::tests {

enum class Placement { kOutOfPlace, kInPlaceOfLora, kInPlaceOfBase };

struct ComposeShape {
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  std::int64_t row_padding = 0;
  int misalignment = 0;  // of lora, base, gain and out, in elements of each
};

// The operands of a case on a device, kept from one run to the next.
struct ComposeBuffers {
  std::array<std::unique_ptr<device::Buffer>, 4> memory;
  std::array<bool, 4> is_current{};  // holds what the case says
};

class ComposeCase {
 public:
  ComposeCase(const kernels::Variant& variant, const ComposeShape& shape, double scale,
              double special_odds, unsigned seed);

  // Empty when the kernel wrote exactly the right bits and nothing else; else what is wrong.
  // kInPlaceOf... needs the input to have the output's type.
  // `buffers` starts empty and belongs to this case and device.
  std::string run(device::Device& device, const launch::ReadyKernel& kernel, Placement placement,
                  ComposeBuffers& buffers) const;

  // A config may serve this case only if its vectors are no wider.
  [[nodiscard]] int vector_width(kernels::DeviceKind kind) const;

 private:
  Status upload(device::Device& device, ComposeBuffers& buffers) const;
  [[nodiscard]] std::string compare(const HostTensor& result, const HostTensor& before,
                                    const launch::ReadyKernel& kernel) const;
  [[nodiscard]] std::uint64_t expected_bits(std::int64_t row, std::int64_t col) const;

  kernels::Variant variant_;
  ComposeShape shape_;
  double scale_;
  HostTensor lora_;
  HostTensor base_;
  HostTensor gain_;
  HostTensor out_;
  std::vector<std::uint64_t> expected_;  // canonical bits, row by row
};

// Whether a placement makes sense for the types of a variant.
bool allows(const kernels::Variant& variant, Placement placement);

}  // namespace dorajit::tests
