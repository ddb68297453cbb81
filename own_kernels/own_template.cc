// The template of own kernels: launches and configs as their expressions have them.
#include <algorithm>
#include <bit>
#include <cstring>
#include <format>
#include <limits>
#include <optional>

#include "kernel_templates/config.h"
#include "kernel_templates/sizes.h"
#include "own_kernels/own_operation.h"

namespace dorajit::own_kernels {
namespace {

using kernels::Config;
using kernels::KernelParameters;
using kernels::LaunchArguments;
using kernels::LaunchShape;
using kernels::Sizes;
using kernels::SpaceTraits;
using kernels::Variant;

// What every GPU since compute capability 5.0 allows at most.
constexpr std::int64_t kWidestGrid = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kTallestGrid = 65535;
constexpr std::int64_t kMaxThreads = 1024;
constexpr std::int64_t kMaxSharedBytes = std::int64_t{227} << 10;
constexpr double kElementsToVerify = 1 << 20;

using Values = std::array<std::int64_t, kernels::kMaxSizes + Config::kMaxTunables + 1>;

Values values_of(const OwnOperation& own, const Sizes& sizes, const Config& config,
                 int processors) {
  Values values;
  const std::size_t count = own.all_dimensions.size();
  std::copy_n(sizes.begin(), count, values.begin());
  std::size_t at = count;
  for (const kernels::Tunable& tunable : config.tunables()) values[at++] = tunable.value;
  values[own.names.size() - 1] = processors;
  return values;
}

struct Extents {
  std::array<std::int64_t, 3> grid;
  std::array<std::int64_t, 3> block;
  std::int64_t shared_bytes;
};

std::expected<Extents, Fault> extents_of(const OwnOperation::Stage& stage, const Values& values) {
  Extents extents;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto blocks = stage.grid[i].evaluate(values);
    const auto threads = stage.block[i].evaluate(values);
    if (!blocks) return std::unexpected(blocks.error());
    if (!threads) return std::unexpected(threads.error());
    extents.grid[i] = *blocks;
    extents.block[i] = *threads;
  }
  const auto shared = stage.shared_memory.evaluate(values);
  if (!shared) return std::unexpected(shared.error());
  extents.shared_bytes = *shared;
  return extents;
}

bool is_launchable(const Extents& extents) {
  const auto& [grid, block, shared] = extents;
  const auto is_within = [](std::int64_t value, std::int64_t most) {
    return value >= 1 && value <= most;
  };
  return is_within(grid[0], kWidestGrid) && is_within(grid[1], kTallestGrid) &&
         is_within(grid[2], kTallestGrid) && is_within(block[0], kMaxThreads) &&
         is_within(block[1], kMaxThreads) && is_within(block[2], 64) &&
         block[0] * block[1] * block[2] <= kMaxThreads && shared >= 0 && shared <= kMaxSharedBytes;
}

std::string describe_values(const OwnOperation& own, const Values& values,
                            const Expression& expression) {
  std::string text;
  for (std::size_t i = 0; i < own.names.size(); ++i) {
    if (!expression.reads(i)) continue;
    text += std::format("{}{} = {}", text.empty() ? "" : ", ", own.names[i], values[i]);
  }
  return text;
}

bool is_launchable(const OwnOperation::Stage& stage, const Values& values) {
  const auto extents = extents_of(stage, values);
  return extents && is_launchable(*extents);
}

std::string why_not_launchable(const OwnOperation& own, const OwnOperation::Stage& stage,
                               const Values& values) {
  const auto explain = [&](std::string_view field, const Expression& expression,
                           std::string_view what) {
    return std::format("its {} \"{}\" {}, with {}", field, expression.text(), what,
                       describe_values(own, values, expression));
  };
  constexpr std::string_view kAxes[] = {"x", "y", "z"};
  const auto check = [&](std::string_view field, const Expression& expression, std::int64_t least,
                         std::int64_t most) -> std::string {
    const auto value = expression.evaluate(values);
    if (!value) return explain(field, expression, name(value.error()));
    if (*value >= least && *value <= most) return {};
    return explain(field, expression, std::format("is {}; it is {} to {}", *value, least, most));
  };
  for (std::size_t i = 0; i < 3; ++i) {
    std::string why = check(std::format("grid along {}", kAxes[i]), stage.grid[i], 1,
                            i == 0 ? kWidestGrid : kTallestGrid);
    if (why.empty()) {
      why = check(std::format("block along {}", kAxes[i]), stage.block[i], 1,
                  i == 2 ? 64 : kMaxThreads);
    }
    if (!why.empty()) return why;
  }
  std::string why = check("shared_memory", stage.shared_memory, 0, kMaxSharedBytes);
  return why.empty() ? std::format("its block has more than {} threads", kMaxThreads) : why;
}

// Nothing for a number that no memory holds.
std::optional<std::int64_t> elements_of_workspace(const OwnOperation& own, const Sizes& sizes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  const auto elements = own.elements_of_workspace->evaluate(sizes);
  return elements && *elements > 0 && *elements <= kMost ? std::optional(*elements) : std::nullopt;
}

std::string why_not_on(const OwnOperation& own, const Sizes& sizes, const Config& config,
                       int processors) {
  const std::size_t count = std::min(own.standards_of_sizes.size(), config.tunables().size());
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = own.given.parameters[i];
    const int value = config.tunables()[i].value;
    if (!own.standards_of_sizes[i] || std::ranges::contains(parameter.values, value)) continue;
    return std::format("its {} is {}, which is none of its values; the default is \"{}\"",
                       parameter.name, value, parameter.standard_of_sizes);
  }
  const Values values = values_of(own, sizes, config, processors);
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
    if (!is_launchable(stage, values)) return why_not_launchable(own, stage, values);
  }
  return {};
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
  return why_not_on(OwnOperation::of(variant), sizes, config, traits.processors);
}

std::string no_expression(const Config&) { return {}; }

kernels::StageShape shape_of(const Extents& extents) {
  const auto& [grid, block, shared] = extents;
  return {.grid_x = grid[0],
          .grid_y = grid[1],
          .grid_z = grid[2],
          .threads = static_cast<int>(block[0]),
          .threads_y = static_cast<int>(block[1]),
          .threads_z = static_cast<int>(block[2]),
          .shared_bytes = static_cast<int>(shared)};
}

LaunchShape shape_launch(const Variant& variant, const Config& config,
                         const LaunchArguments& arguments, int processors) {
  const OwnOperation& own = OwnOperation::of(variant);
  const Values values = values_of(own, arguments.all_sizes, config, processors);
  LaunchShape shape{.run = {}};
  for (std::size_t i = 0; i < own.stages.size(); ++i) {
    const auto extents = extents_of(own.stages[i], values);
    if (!extents || !is_launchable(*extents)) return {};
    (i == 0 ? shape.run : shape.later[i - 1]) = shape_of(*extents);
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

std::int64_t bytes_of_workspace(const Variant& variant, const Sizes& sizes) {
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
    if (value_limit(variant, i, sizes) < 1) return false;
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
    return why_not_on(own, sizes, standard, 1).empty() && have_values(variant, sizes);
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
      if (!serves(halved)) break;
      few = halved;
    }
  }
  Sizes ragged = few;
  for (std::size_t i = 0; i < own.all_dimensions.size(); ++i) {
    const std::int64_t step = own.all_dimensions[i].limits_class ? width : 1;
    if (is_bucketed(i) && ragged[i] > step) ragged[i] -= step;
  }
  std::vector<Sizes> sizes = {few, few};
  if (ragged != few && serves(ragged)) sizes.push_back(ragged);
  return sizes;
}

}  // namespace

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
};

}  // namespace dorajit::own_kernels
