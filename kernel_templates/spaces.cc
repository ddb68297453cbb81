#include "kernel_templates/spaces.h"

#include <algorithm>
#include <format>
#include <iterator>

#include "kernel_templates/integer_types.h"
#include "kernel_templates/template.h"

namespace dorajit::kernels {
namespace {

constexpr int kMaxVectorBytes = 16;

struct Limits {
  int architecture;
  int shared_kibibytes;
  int multiprocessors;  // of the T4, A100, RTX A6000, Orin, L40S, H100, B200, B300, Thor, RTX PRO
};
constexpr Limits kLimits[] = {
    {75, 64, 40},   {80, 163, 108},  {86, 99, 84},    {87, 163, 16},  {89, 99, 142},
    {90, 227, 132}, {100, 227, 148}, {103, 227, 148}, {110, 227, 20}, {120, 99, 188},
};

// Of an unknown architecture, what all have.
constexpr Limits limits_of(int architecture) {
  const auto* const found = std::ranges::find(kLimits, architecture, &Limits::architecture);
  return found != std::end(kLimits) ? *found : Limits{architecture, 99, 16};
}

}  // namespace

std::int64_t max_shared_bytes(int architecture) {
  return limits_of(architecture).shared_kibibytes * std::int64_t{1024};
}

int usual_multiprocessors(int architecture) { return limits_of(architecture).multiprocessors; }

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

bool is_converted(const Variant& variant, std::size_t operand) {
  return variant.operation->operands[operand].is_converted &&
         element_size(variant.types[operand]) > 2;
}

int widest_vector(const Variant& variant, DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return 1;
  int largest = 1;
  const Operation& s = *variant.operation;
  for (std::size_t i = 0; i < s.operands.size(); ++i) {
    if (s.operands[i].shape.is_matrix() && variant.has(i) && !is_converted(variant, i)) {
      largest = std::max(largest, element_size(variant.types[i]));
    }
  }
  return std::min(kMaxVectorWidth, kMaxVectorBytes / largest);
}

Config default_config(const Variant& variant, const SpaceTraits& traits, int vector_width) {
  return template_of(variant).default_config(variant, traits, vector_width);
}

Config default_config(const Variant& variant, const SpaceTraits& traits, int vector_width,
                      const Sizes& sizes) {
  const auto of_sizes = template_of(variant).default_for_sizes;
  return of_sizes == nullptr ? default_config(variant, traits, vector_width)
                             : of_sizes(variant, traits, vector_width, sizes);
}

std::vector<Config> config_space(const Variant& variant, const SpaceTraits& traits,
                                 int vector_width, SpaceKind kind) {
  return template_of(variant).config_space(variant, traits, vector_width, kind);
}

std::vector<Config> config_space(const Variant& variant, const SpaceTraits& traits,
                                 int vector_width, SpaceKind kind, const Sizes& sizes) {
  // The default is always included: it is used when no winner is known.
  std::vector<Config> space = {default_config(variant, traits, vector_width, sizes)};
  for (const Config& config : config_space(variant, traits, vector_width, kind)) {
    if (config != space.front() &&
        why_config_is_invalid(variant, traits, vector_width, sizes, config).empty()) {
      space.push_back(config);
    }
  }
  return space;
}

double misfit(const Variant& variant, const SpaceTraits& traits, const Sizes& sizes,
              const Config& config) {
  const auto own = template_of(variant).misfit;
  return own == nullptr ? 0 : own(variant, traits, sizes, config);
}

Config compiled_part(const Config& config, DeviceKind kind) {
  Config compiled = config;
  if (kind == DeviceKind::kCpu) compiled.set(kWarps, 1);
  return compiled;
}

}  // namespace dorajit::kernels
