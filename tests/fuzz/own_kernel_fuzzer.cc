// Feeds descriptions of own kernels to what makes operations of them: each ends in an operation or
// an error. What is an operation is also launched as far as its expressions go.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernel_templates/integer_types.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"
#include "own_kernels/expression.h"
#include "own_kernels/kernel.h"
#include "runtime/launch/problem.h"

namespace {

using namespace dorajit;

constexpr int kTypes = kernels::kNumTypesOfOwnKernels;

void use(const kernels::Operation& operation) {
  const kernels::SpaceTraits traits{
      .kind = kernels::DeviceKind::kCuda, .processors = 132, .architecture = 90};
  // Of the first type that it serves; one that mixes choices of floats and of integers has none.
  std::optional<kernels::Variant> served;
  for (int type = 0; type < kTypes && !served; ++type) {
    served = own_kernels::variant_of(operation, static_cast<kernels::ElementType>(type));
  }
  if (!served) return;
  const kernels::Variant variant = *served;
  for (const std::int64_t size : {0L, 1L, 4096L, INT64_MAX}) {
    kernels::Sizes sizes;
    sizes.fill(size);
    sizes = kernels::with_derived(variant, sizes, size == 1 ? 1 : 8);
    kernels::LaunchArguments arguments;
    arguments.set_sizes(sizes);
    const kernels::Config config = kernels::default_config(variant, traits, 8, sizes);
    (void)kernels::why_config_is_invalid(variant, traits, 8, sizes, config);
    (void)kernels::launch_shape(variant, config, arguments, 132);
    (void)kernels::template_of(variant).tensor_boxes(variant, config, arguments, 132);
    (void)kernels::workspace_bytes(variant, kernels::DeviceKind::kCuda, sizes);
    std::array<std::byte, kernels::kTensorMaps * kernels::KernelParameters::kTensorMapBytes> maps;
    kernels::KernelParameters parameters{.values = {}, .addresses = {}, .tensor_maps = maps.data()};
    kernels::template_of(variant).put_parameters(variant, arguments, parameters);
    (void)kernels::template_of(variant).verification_sizes(variant, sizes);
    (void)launch::check_size(variant, sizes);
    for (std::size_t i = 0; i < operation.operands.size(); ++i) {
      (void)kernels::row_length(operation.operands[i].shape, sizes);
      (void)kernels::span_length(operation.operands[i].shape, sizes);
      (void)kernels::template_of(variant).value_limit(variant, i, sizes);
    }
  }
  (void)kernels::program_of(variant, kernels::default_config(variant, traits, 8),
                            kernels::DeviceKind::kCuda);
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto kernel = own_kernels::make_kernel(text)) use(**kernel);
  const std::string names[] = {"n", "BLOCK"};
  const std::int64_t values[] = {4096, 128};
  if (const auto expression = own_kernels::Expression::parse(text, names)) {
    (void)expression->evaluate(values);
  }
  return 0;
}
