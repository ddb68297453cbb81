#include "apps/cli/bench/unfused_passes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"

namespace dorajit::cli {
namespace {

using kernels::KernelArguments;
using kernels::Variant;

constexpr std::string_view kOut = "out";
constexpr std::string_view kTemporary = "temporary";  // of no operand

struct Pass {
  std::string_view operation;
  std::array<std::string_view, 3> operands;  // compose's names for them; empty beyond the last
};

constexpr std::array kPasses = {
    Pass{"scale_by_scalar", {"lora", kOut}},
    Pass{"scale_by_gain", {kOut, "gain", kOut}},
    Pass{"scale_by_gain_minus_one", {"base", "gain", kTemporary}},
    Pass{"add", {kOut, kTemporary, kOut}},
};

// Where compose has the operand of that name; the temporary stands behind all of them.
std::size_t place_of(const Variant& compose, std::string_view name) {
  const auto& operands = compose.operation->operands;
  const auto found = std::ranges::find(operands, name, &kernels::Operand::name);
  return static_cast<std::size_t>(found - operands.begin());
}

kernels::ElementType type_of_result(const Variant& compose) {
  return compose.types[place_of(compose, kOut)];
}

}  // namespace

std::int64_t UnfusedPasses::temporary_bytes(const Variant& compose, const kernels::Sizes& sizes) {
  return sizes[kernels::kRows] * sizes[kernels::kCols] *
         kernels::size_in_bytes(type_of_result(compose));
}

Result<UnfusedPasses> UnfusedPasses::make(device::Device& device, launch::KernelCache& kernels,
                                          const Variant& compose, int vector_width,
                                          const kernels::Sizes& sizes) {
  UnfusedPasses passes(device);
  passes.temporary_place_ = place_of(compose, kTemporary);
  auto types = compose.types;
  types[passes.temporary_place_] = type_of_result(compose);
  for (const Pass& pass : kPasses) {
    ReadyPass& ready = passes.passes_.emplace_back();
    Variant variant{.operation = &kernels::operation(pass.operation)};
    for (std::size_t i = 0; i < variant.operation->operands.size(); ++i) {
      ready.places.push_back(place_of(compose, pass.operands[i]));
      variant.types[i] = types[ready.places[i]];
    }
    const kernels::Config config =
        kernels::default_config(variant, device.info().traits, vector_width);
    DORAJIT_ASSIGN(ready.kernel, kernels.get(device, variant, config));
  }
  const std::int64_t bytes = temporary_bytes(compose, sizes);
  DORAJIT_ASSIGN(passes.temporary_, device.allocate(static_cast<std::size_t>(bytes)));
  DORAJIT_TRY(device.fill(passes.temporary_->data(), 0, passes.temporary_->size()));
  passes.row_stride_ = sizes[kernels::kCols];
  return passes;
}

Status UnfusedPasses::run(const KernelArguments& compose, device::Stream stream) const {
  auto operands = std::to_array(compose.operands);
  operands[temporary_place_] = {.data = temporary_->data(), .row_stride = row_stride_};
  KernelArguments arguments{};
  std::ranges::copy(compose.sizes, arguments.sizes);
  arguments.scalars[0] = compose.scalars[0];
  for (const auto& [ready, places] : passes_) {
    for (std::size_t i = 0; i < places.size(); ++i) arguments.operands[i] = operands[places[i]];
    DORAJIT_TRY(device_->launch(*ready.kernel, ready.config, arguments, stream));
  }
  return {};
}

}  // namespace dorajit::cli
