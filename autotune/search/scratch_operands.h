// Scratch operands on a device, on which configs are measured and verified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/search/scratch_shape.h"
#include "kernel_templates/launch_shape.h"
#include "kernel_templates/registry.h"
#include "kernel_templates/sizes.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace dorajit::autotune {

// Several sets of operands of one variant, in one allocation. Inputs have reproducible finite
// values, as described by the operation table. Outputs, and the guards between operands, which no
// kernel may write, are poisoned. So is what lies between the elements of an operand with strides:
// by bytes that are a NaN where they are floating-point numbers, but by values of the operand where
// they are integers, with which a kernel may index.
class ScratchOperands {
 public:
  static Result<ScratchOperands> make(device::Device& device, const kernels::Variant& variant,
                                      const ScratchShape& shape);

  // The arguments of a launch on one set. A scalar is the size that it defines, or else
  // what the operation has for tuning.
  [[nodiscard]] kernels::LaunchArguments arguments(std::int64_t set) const;

  [[nodiscard]] const kernels::Variant& variant() const { return variant_; }
  [[nodiscard]] std::int64_t sets() const { return shape_.sets; }
  [[nodiscard]] std::int64_t set_bytes() const { return set_bytes_; }

  // The first byte of a set.
  [[nodiscard]] std::byte* data(std::int64_t set) const {
    return buffer_->data() + set * set_bytes_;
  }

  // Enqueues a copy of all bytes of a set on the device's own stream.
  Status copy(std::int64_t to, std::int64_t from);

  // Bytes that no kernel writes, or at most one of them.
  static constexpr int kPoison = 0xA5;
  static constexpr int kOtherPoison = 0x5A;

  // Fills the outputs and the workspace of a set with a poison, so that no result of an earlier
  // launch is left. Outputs that kernels also read get their samples again.
  Status poison(std::int64_t set, int byte = kPoison);

  // Whether a launch left all bytes between the elements of outputs with strides.
  Result<bool> keeps_gaps(std::int64_t set) const;

  // Fills what lies between the elements of inputs with strides with zeros, or as it was.
  enum class Gaps { kUsual, kZeros };
  Status fill_gaps(std::int64_t set, Gaps gaps);

  // "`out`: 96 of 100 elements" for each output of a set that a launch left elements of with
  // kOtherPoison; empty if there is none.
  Result<std::string> leftovers(std::int64_t set) const;

  // The bytes of every output of a set, padding between rows included.
  Result<std::vector<std::byte>> read_outputs(std::int64_t set) const;

  // The outputs that the host reference computes from the set's inputs, in the same form.
  Result<std::vector<std::byte>> reference_outputs(std::int64_t set) const;

  // Reads or restores all bytes of a set, including guards and workspace.
  Result<std::vector<std::byte>> read(std::int64_t set) const;
  Status restore(std::int64_t set, std::span<const std::byte> image);

  // The bytes of read(), with its outputs replaced by `outputs`, from reference_outputs().
  [[nodiscard]] std::vector<std::byte> with_outputs(std::vector<std::byte> image,
                                                    std::span<const std::byte> outputs) const;

  // An output, or bytes between outputs that no kernel may write.
  struct Part {
    std::size_t offset;  // within a set
    std::size_t bytes;
    std::optional<std::size_t> output{};  // the index of the operand
  };
  // All of a set except its workspace.
  [[nodiscard]] std::vector<Part> parts() const;

  // How far an element of an output may be from the expected one: `step` of the element, and
  // `tolerance` of the larger of the element and the usual size. NaN and infinity must be equal bit
  // for bit.
  struct Allowance {
    kernels::ElementType type;
    double step;  // of rounding, relative to the larger of the element and `smallest`; 0 for types
                  // of more than 16 bits
    double smallest;  // normal number, as smaller ones have steps as wide as its own; 0 where they
                      // do not matter
    double tolerance;
  };
  // Nothing if no bit may differ, as of integers.
  [[nodiscard]] std::optional<Allowance> allowance(std::size_t output) const;
  // The root mean square of the finite elements of each operand that is an output with an
  // allowance, 0 if it overflows; nothing if the operation has no tolerance.
  Result<std::vector<double>> usual_sizes(std::int64_t set) const;

  // Where two images of a set differ, ignoring the workspace.
  enum class Difference { kNone, kOutputs, kElsewhere };
  // How closely outputs must match the expected ones; all other bytes must be equal.
  enum class Closeness { kBitForBit, kWithinTolerance };
  [[nodiscard]] Difference compare(std::span<const std::byte> image,
                                   std::span<const std::byte> expected,
                                   Closeness closeness = Closeness::kBitForBit) const;

  // Bytes that one set takes.
  static std::int64_t bytes_per_set(const kernels::Variant& variant, const ScratchShape& shape,
                                    kernels::DeviceKind kind);

 private:
  // Of an output.
  [[nodiscard]] double usual_size(std::size_t operand, std::span<const std::byte> bytes) const;
  // Whether each element of an output is within its allowance.
  [[nodiscard]] bool is_near(std::size_t operand, std::span<const std::byte> bytes,
                             std::span<const std::byte> expected) const;

  struct Layout {
    std::size_t offset;  // of an operand within a set
    std::size_t bytes;
    long long row_stride;
    std::size_t elements;  // fewer than its bytes have room for if it has strides
  };

  ScratchOperands(device::Device& device, const kernels::Variant& variant,
                  const ScratchShape& shape);

  [[nodiscard]] std::size_t workspace_bytes() const {
    return static_cast<std::size_t>(
        kernels::workspace_bytes(variant_, device_->info().traits.kind, shape_.sizes));
  }
  static std::int64_t operand_bytes(const kernels::Variant& variant, const ScratchShape& shape,
                                    kernels::DeviceKind kind);
  static std::vector<Layout> layout_of(const kernels::Variant& variant, const ScratchShape& shape,
                                       kernels::DeviceKind kind);
  Status fill_inputs();
  // Writes the content of an operand that kernels read.
  Status fill_samples(std::size_t operand, std::int64_t set, Gaps gaps = Gaps::kUsual);
  // Writes bytes to an operand, again and again.
  Status fill(std::size_t operand, std::int64_t set, std::span<const std::byte> bytes);
  [[nodiscard]] bool has_strides(std::size_t operand) const {
    return !variant_.operation->operands[operand].shape.strides.empty() && variant_.has(operand);
  }
  // spread_elements() of an operand.
  [[nodiscard]] std::vector<std::byte> spread(std::size_t operand,
                                              std::span<const std::byte> elements,
                                              std::span<const std::byte> gaps) const;

  device::Device* device_;
  kernels::Variant variant_;
  ScratchShape shape_;
  std::vector<Layout> layout_;
  std::vector<std::size_t> outputs_;   // numbers of the outputs that the variant has
  std::int64_t workspace_offset_ = 0;  // within a set, after its operands
  std::int64_t set_bytes_ = 0;
  std::unique_ptr<device::Buffer> buffer_;
};

}  // namespace dorajit::autotune
