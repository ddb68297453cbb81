// Feeds descriptions of own kernels to what makes operations of them: each ends in an operation or
// an error. What is an operation is also launched as far as its expressions go.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernel_templates/config_limits.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"
#include "own_kernels/expression.h"
#include "own_kernels/kernel.h"

namespace {

using namespace dorajit;

void use(const kernels::Operation& operation) {
  const kernels::SpaceTraits traits{
      .kind = kernels::DeviceKind::kCuda, .processors = 132, .architecture = 90};
  kernels::Variant variant{.operation = &operation};
  if (!kernels::is_supported(variant)) return;
  for (const std::int64_t size : {0L, 1L, 4096L, INT64_MAX}) {
    kernels::Sizes sizes;
    sizes.fill(size);
    kernels::LaunchArguments arguments;
    arguments.set_sizes(sizes);
    const kernels::Config config = kernels::default_config(variant, traits, 8, sizes);
    (void)kernels::why_config_is_invalid(variant, traits, 8, sizes, config);
    (void)kernels::launch_shape(variant, config, arguments);
    (void)kernels::row_length(operation.operands.front().shape, sizes);
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
