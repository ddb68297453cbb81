// The template of own kernels: launches and configs as their expressions have them.
#include <algorithm>
#include <bit>
#include <cstring>
#include <format>
#include <limits>
#include <optional>
#include <utility>

#include "kernel_templates/config.h"
#include "kernel_templates/integer_types.h"
#include "kernel_templates/sizes.h"
#include "own_kernels/launch_extents.h"

namespace dorajit::own_kernels {
namespace {

using kernels::Config;
using kernels::KernelParameters;
using kernels::LaunchArguments;
using kernels::LaunchShape;
using kernels::Sizes;
using kernels::SpaceTraits;
using kernels::Variant;

constexpr double kElementsToVerify = 1 << 20;

// Nothing for a number that no memory holds.
std::optional<std::int64_t> elements_of_workspace(const OwnOperation& own, const Sizes& sizes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  const auto elements = own.elements_of_workspace->evaluate(sizes);
  return elements && *elements > 0 && *elements <= kMost ? std::optional(*elements) : std::nullopt;
}

std::string why_not_on(const Variant& variant, const Sizes& sizes, const Config& config,
                       const SpaceTraits& traits) {
  const OwnOperation& own = OwnOperation::of(variant);
  const std::size_t count = std::min(own.standards_of_sizes.size(), config.tunables().size());
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = own.given.parameters[i];
    const int value = config.tunables()[i].value;
    if (!own.standards_of_sizes[i] || std::ranges::contains(parameter.values, value)) continue;
    return std::format("its {} is {}, which is none of its values; the default is \"{}\"",
                       parameter.name, value, parameter.standard_of_sizes);
  }
  for (std::size_t i = 0; i < own.all_dimensions.size(); ++i) {
    const kernels::Dimension& stride = own.all_dimensions[i];
    if (stride.keying != kernels::Keying::kStride || stride.most == 0) continue;
    if (sizes[i] <= stride.most) continue;
    return std::format("its stride `{}` is {}, more than {}", stride.name, sizes[i], stride.most);
  }
  for (const auto& [index, expression] : own.computed_sizes) {
    if (sizes[index] != 0) continue;  // what is negative is taken for 0
    const auto value = expression.evaluate(sizes);
    if (value && *value < 0) return std::format("its `{}` is {}", expression.text(), *value);
  }
  const Values values = values_of(own, sizes, config, traits.processors);
  if (own.constraint) {
    const auto holds = own.constraint->evaluate(values);
    if (!holds || *holds == 0) {
      return std::format("its constraint \"{}\" {}, with {}", own.constraint->text(),
                         holds ? "does not hold" : name(holds.error()),
                         describe_values(own, values, *own.constraint));
    }
  }
  if (own.elements_of_workspace && !elements_of_workspace(own, sizes)) {
    return std::format("its workspace of \"{}\" elements is not 1 to 2^48, with {}",
                       own.elements_of_workspace->text(),
                       describe_values(own, values, *own.elements_of_workspace));
  }
  for (const OwnOperation::Stage& stage : own.stages) {
    std::string why = why_not_launchable(own, stage, values, traits);
    if (!why.empty()) return why;
  }
  return why_no_tensor_map(variant, sizes, values, traits);
}

Config choose_default(const Variant& variant, const SpaceTraits&, int) {
  return OwnOperation::of(variant).standard;
}

// A value that is none of the parameter's fits no size, so that the call is refused.
Config default_of_sizes(const Variant& variant, const SpaceTraits&, int, const Sizes& sizes) {
  const OwnOperation& own = OwnOperation::of(variant);
  Config config = own.standard;
  for (std::size_t i = 0; i < own.standards_of_sizes.size(); ++i) {
    const auto& standard = own.standards_of_sizes[i];
    if (!standard) continue;
    using Limits = std::numeric_limits<int>;
    const std::int64_t value = standard->evaluate(sizes).value_or(Limits::min());
    config.set(own.standard.tunables()[i].mark,
               static_cast<int>(std::clamp<std::int64_t>(value, Limits::min(), Limits::max())));
  }
  return config;
}

std::vector<Config> list_configs(const Variant& variant, const SpaceTraits&, int,
                                 kernels::SpaceKind) {
  return OwnOperation::of(variant).space;
}

std::string why_invalid(const Variant& variant, const SpaceTraits&, const Config& config) {
  const auto& parameters = OwnOperation::of(variant).given.parameters;
  const auto tunables = config.tunables();
  const bool is_known = std::ranges::equal(
      tunables, parameters, [](const kernels::Tunable& tunable, const Parameter& parameter) {
        return tunable.mark.text() == parameter.name &&
               std::ranges::contains(parameter.values, tunable.value);
      });
  return is_known ? "" : "its parameters are not those of the kernel's description";
}

std::string why_not_fitting(const Variant& variant, const SpaceTraits& traits, const Sizes& sizes,
                            const Config& config) {
  return why_not_on(variant, sizes, config, traits);
}

std::string no_expression(const Config&) { return {}; }

LaunchShape shape_launch(const Variant& variant, const Config& config,
                         const LaunchArguments& arguments, int processors) {
  const OwnOperation& own = OwnOperation::of(variant);
  const Values values = values_of(own, arguments.all_sizes, config, processors);
  LaunchShape shape{.run = {}};
  for (std::size_t i = 0; i < own.stages.size(); ++i) {
    const auto stage = stage_shape(own.stages[i], values);
    if (!stage) return {};
    (i == 0 ? shape.run : shape.later[i - 1]) = *stage;
  }
  return shape;
}

void put_parameters(const Variant& variant, const LaunchArguments& arguments,
                    KernelParameters& parameters) {
  const auto& sources = OwnOperation::of(variant).sources_of_parameters;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto [kind, index, type] = sources[i];
    void* const converted = &parameters.values[i];
    parameters.addresses[i] = converted;
    const auto put_integer = [&](std::int64_t number) {
      // Its low bytes, on every host of an NVIDIA GPU.
      std::memcpy(converted, &number, sizeof number);
    };
    if (kind == OwnOperation::Source::Kind::kOperand) {
      std::memcpy(converted, &arguments.operands[index].data, sizeof(void*));
    } else if (kind == OwnOperation::Source::Kind::kTensorMap) {
      parameters.addresses[i] = parameters.tensor_maps + index * KernelParameters::kTensorMapBytes;
    } else if (kind == OwnOperation::Source::Kind::kWorkspace) {
      std::memcpy(converted, &arguments.workspace, sizeof(void*));
    } else if (kind == OwnOperation::Source::Kind::kSize) {
      put_integer(arguments.all_sizes[index]);
    } else if (type == kernels::ElementType::kFloat32) {
      const auto number = static_cast<float>(arguments.all_scalars[index]);
      std::memcpy(converted, &number, sizeof number);
    } else if (type == kernels::ElementType::kFloat64) {
      std::memcpy(converted, &arguments.all_scalars[index], sizeof(double));
    } else {
      put_integer(static_cast<std::int64_t>(arguments.all_scalars[index]));
    }
  }
}

std::int64_t bytes_of_workspace(const Variant& variant, kernels::DeviceKind, const Sizes& sizes) {
  const OwnOperation& own = OwnOperation::of(variant);
  if (!own.elements_of_workspace) return 0;
  return elements_of_workspace(own, sizes).value_or(0) * own.bytes_of_workspace_element;
}

// The class of a problem with those sizes (kernels::Dimension::limits_class).
std::int64_t class_of(const OwnOperation& own, const Sizes& sizes) {
  std::int64_t width = kernels::kMaxVectorWidth;
  for (std::size_t i = 0; i < own.all_dimensions.size(); ++i) {
    if (!own.all_dimensions[i].limits_class) continue;
    while (width > 1 && sizes[i] % width != 0) width /= 2;
  }
  return width;
}

// Whether there are values of all integer inputs for those sizes.
bool have_values(const Variant& variant, const Sizes& sizes) {
  for (std::size_t i = 0; i < variant.operation->operands.size(); ++i) {
    if (variant.has(i) && value_limit(variant, i, sizes) < 1) return false;
  }
  return true;
}

// Bucketed sizes may be changed one by one; that is what a bucket says. Others stand in relations
// to each other that nobody here knows.
std::vector<Sizes> list_verification_sizes(const Variant& variant, const Sizes& problem) {
  const OwnOperation& own = OwnOperation::of(variant);
  const std::int64_t width = class_of(own, problem);
  const Config standard = default_of_sizes(variant, {}, 0, problem);
  const auto serves = [&](const Sizes& sizes) {
    // Of whatever device: the tuner asks again for the one that it has.
    return why_not_on(variant, sizes, standard, SpaceTraits{}).empty() &&
           have_values(variant, sizes);
  };
  const auto is_bucketed = [&](std::size_t i) {
    return own.all_dimensions[i].keying == kernels::Keying::kBucketed;
  };
  Sizes few = problem;
  for (std::size_t i = 0; i < own.all_dimensions.size(); ++i) {
    while (is_bucketed(i) && few[i] >= 2 * width &&
           kernels::num_elements(variant, few) > kElementsToVerify) {
      Sizes halved = few;
      halved[i] = few[i] / 2 / width * width;
      derive_sizes(variant, static_cast<int>(width), halved);
      if (!serves(halved)) break;
      few = halved;
    }
  }
  Sizes ragged = few;
  for (std::size_t i = 0; i < own.all_dimensions.size(); ++i) {
    const std::int64_t step = own.all_dimensions[i].limits_class ? width : 1;
    if (is_bucketed(i) && ragged[i] > step) ragged[i] -= step;
  }
  derive_sizes(variant, static_cast<int>(width), ragged);
  Sizes apart = few;
  constexpr std::int64_t kApart = 2;
  space_out(own, static_cast<int>(width), kApart, apart);
  std::vector<Sizes> sizes = {few, serves(apart) ? apart : few};
  if (ragged != few && serves(ragged)) sizes.push_back(ragged);
  return sizes;
}

}  // namespace

Status list_space(OwnOperation& own) {
  const auto& parameters = own.given.parameters;
  if (parameters.size() > Config::kMaxTunables) {
    return refuse_description(std::format("there are {} parameters; at most {} are served",
                                          parameters.size(), Config::kMaxTunables));
  }
  std::size_t count = 1;
  for (const Parameter& parameter : parameters) {
    own.standard.append({.mark = kernels::Mark(parameter.name), .value = parameter.standard});
    // Values and counts are bounded before they are multiplied.
    count *= std::min(parameter.values.size(), Description::kMaxConfigs + 1);
    if (count > Description::kMaxConfigs) {
      return refuse_field("parameters", std::format("make more than {} configs; give fewer values",
                                                    Description::kMaxConfigs));
    }
  }
  // All combinations, those beyond the default in an order that has no direction: of a space that
  // is too large to be tried whole, the first are as good a sample as any.
  std::vector<std::pair<std::uint32_t, Config>> order;
  for (std::size_t code = 0; code < count; ++code) {
    Config config;
    std::size_t rest = code;
    for (const Parameter& parameter : parameters) {
      config.append({.mark = kernels::Mark(parameter.name),
                     .value = parameter.values[rest % parameter.values.size()]});
      rest /= parameter.values.size();
    }
    order.emplace_back(static_cast<std::uint32_t>(code) * 2654435761U, config);
  }
  std::ranges::sort(order, {}, &std::pair<std::uint32_t, Config>::first);
  own.space = {own.standard};
  for (const auto& [place, config] : order) {
    if (config != own.standard) own.space.push_back(config);
  }
  return {};
}

Status read_workspace(OwnOperation& own, const Argument& argument) {
  if (own.elements_of_workspace) {
    return refuse_description(
        std::format("`{}` is a second workspace; take a part of the first one", argument.name));
  }
  const auto type = parse_type_name(argument.type);
  if (!type) {
    return refuse_description(
        std::format("the workspace `{}` has elements of \"{}\", which is none of {}", argument.name,
                    argument.type.substr(0, 100), type_names()));
  }
  auto elements = Expression::parse(argument.shape.front(), own.names);
  if (!elements) {
    return refuse_description(
        std::format("the workspace `{}`: {}", argument.name, elements.error().message));
  }
  own.elements_of_workspace = *std::move(elements);
  own.bytes_of_workspace_element = kernels::element_size(*type);
  return {};
}

constinit const kernels::Template own_template = {
    .name = "own",
    .cuda_source = {},
    .cpu_source = {},
    .entry_macro = {},
    .default_config = choose_default,
    .default_for_sizes = default_of_sizes,
    .config_space = list_configs,
    .why_config_is_invalid = why_invalid,
    .config_expression = no_expression,
    .launch_shape = shape_launch,
    .workspace_bytes = bytes_of_workspace,
    .verification_sizes = list_verification_sizes,
    .why_config_does_not_fit = why_not_fitting,
    .fits_by_call = true,
    .program = own_program,
    .put_parameters = put_parameters,
    .value_limit = value_limit,
    .tensor_boxes = tensor_boxes,
    .derive_sizes = derive_sizes,
};

}  // namespace dorajit::own_kernels
