#include "bindings/cli/unfused_passes.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"

namespace dorajit::cli {
namespace {

using kernels::ElementType;
using kernels::KernelArguments;
using kernels::OperandArgument;
using kernels::Variant;

// Where compose's operands stand.
enum Operand : std::size_t { kLora, kBase, kGain, kOut };

}  // namespace

std::int64_t UnfusedPasses::temporary_bytes(const Variant& compose, const kernels::Sizes& sizes) {
  return sizes[kernels::kRows] * sizes[kernels::kCols] *
         kernels::size_in_bytes(compose.types[kOut]);
}

Result<UnfusedPasses> UnfusedPasses::make(device::Device& device, launch::KernelCache& kernels,
                                          const Variant& compose, int vector_width,
                                          const kernels::Sizes& sizes) {
  const auto& types = compose.types;
  const ElementType out = types[kOut];
  const std::array<Variant, kNumPasses> variants = {
      Variant{.operation = &kernels::operation("scale_by_scalar"), .types = {types[kLora], out}},
      Variant{.operation = &kernels::operation("scale_by_gain"), .types = {out, types[kGain], out}},
      Variant{.operation = &kernels::operation("scale_by_gain_minus_one"),
              .types = {types[kBase], types[kGain], out}},
      Variant{.operation = &kernels::operation("add"), .types = {out, out, out}}};
  UnfusedPasses passes(device);
  for (std::size_t i = 0; i < kNumPasses; ++i) {
    const kernels::Config config =
        kernels::default_config(variants[i], device.info().traits, vector_width);
    DORAJIT_ASSIGN(passes.passes_[i], kernels.get(device, variants[i], config));
  }
  const std::int64_t bytes = temporary_bytes(compose, sizes);
  DORAJIT_ASSIGN(passes.temporary_, device.allocate(static_cast<std::size_t>(bytes)));
  DORAJIT_TRY(device.fill(passes.temporary_->data(), 0, passes.temporary_->size()));
  passes.row_stride_ = sizes[kernels::kCols];
  return passes;
}

Status UnfusedPasses::run(const KernelArguments& compose, device::Stream stream) const {
  const OperandArgument base_part{.data = temporary_->data(), .row_stride = row_stride_};
  const auto launch = [&](Pass pass, std::initializer_list<OperandArgument> operands) {
    KernelArguments arguments{};
    std::ranges::copy(compose.sizes, arguments.sizes);
    arguments.scalars[0] = compose.scalars[0];
    std::size_t next = 0;
    for (const OperandArgument& operand : operands) arguments.operands[next++] = operand;
    return device_->launch(*passes_[pass].kernel, passes_[pass].config, arguments, stream);
  };
  const OperandArgument& gain = compose.operands[kGain];
  const OperandArgument& out = compose.operands[kOut];
  DORAJIT_TRY(launch(kScaleLora, {compose.operands[kLora], out}));
  DORAJIT_TRY(launch(kGainLora, {out, gain, out}));
  DORAJIT_TRY(launch(kGainBase, {compose.operands[kBase], gain, base_part}));
  return launch(kSum, {out, base_part, out});
}

}  // namespace dorajit::cli
