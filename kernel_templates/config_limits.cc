#include "kernel_templates/config_limits.h"

#include <format>

#include "kernel_templates/template.h"

namespace dorajit::kernels {

std::string why_config_is_invalid(const Variant& variant, const SpaceTraits& traits,
                                  const Config& config) {
  return template_of(variant).why_config_is_invalid(variant, traits, config);
}

std::string why_config_is_invalid(const Variant& variant, const SpaceTraits& traits,
                                  int vector_width, const Sizes& sizes, const Config& config) {
  if (config[kVectorWidth] > vector_width) {
    return std::format("its vectors of {} elements do not fit the data, which is aligned to {}",
                       config[kVectorWidth], vector_width);
  }
  if (traits.kind == DeviceKind::kCpu && config[kWarps] > traits.processors) {
    return std::format("its {} workers are more than the {} processors", config[kWarps],
                       traits.processors);
  }
  const std::string why = why_config_is_invalid(variant, traits, config);
  const auto why_not = template_of(variant).why_config_does_not_fit;
  return why.empty() && why_not != nullptr ? why_not(variant, traits, sizes, config) : why;
}

}  // namespace dorajit::kernels
