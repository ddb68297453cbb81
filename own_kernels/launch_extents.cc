#include "own_kernels/launch_extents.h"

#include <algorithm>
#include <expected>
#include <format>
#include <limits>

namespace dorajit::own_kernels {
namespace {

// What every GPU since compute capability 5.0 allows at most.
constexpr std::int64_t kWidestGrid = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kTallestGrid = 65535;
constexpr std::int64_t kMaxThreads = 1024;
constexpr std::int64_t kDeepestBlock = 64;
constexpr std::int64_t kMaxSharedBytes = std::int64_t{227} << 10;  // of any
// More blocks need an attribute of the function, and not every GPU has room for them.
constexpr std::int64_t kLargestCluster = 8;
constexpr int kArchitectureOfClusters = 90;
// What a multiprocessor holds at most, of any GPU; each block takes 1 KiB of the shared memory.
constexpr std::int64_t kResidentThreads = 2048;
constexpr std::int64_t kResidentBlocks = 32;
constexpr std::int64_t kResidentSharedBytes = std::int64_t{228} << 10;
constexpr std::int64_t kSharedBytesOfBlock = 1024;
constexpr std::int64_t kWarp = 32;

using Extent = std::array<std::int64_t, 3>;
struct Extents {
  Extent grid;
  Extent block;
  Extent cluster = {1, 1, 1};
  std::int64_t shared_bytes;
};

std::int64_t product(const Extent& extent) { return extent[0] * extent[1] * extent[2]; }

std::expected<Extent, Fault> evaluate(const std::array<Expression, 3>& expressions,
                                      const Values& values) {
  Extent extent;
  for (std::size_t i = 0; i < extent.size(); ++i) {
    const auto value = expressions[i].evaluate(values);
    if (!value) return std::unexpected(value.error());
    extent[i] = *value;
  }
  return extent;
}

std::expected<Extents, Fault> extents_of(const OwnOperation::Stage& stage, const Values& values) {
  const auto grid = evaluate(stage.grid, values);
  if (!grid) return std::unexpected(grid.error());
  const auto block = evaluate(stage.block, values);
  if (!block) return std::unexpected(block.error());
  const auto shared = stage.shared_memory.evaluate(values);
  if (!shared) return std::unexpected(shared.error());
  Extents extents{.grid = *grid, .block = *block, .shared_bytes = *shared};
  if (stage.cluster) {
    const auto cluster = evaluate(*stage.cluster, values);
    if (!cluster) return std::unexpected(cluster.error());
    extents.cluster = *cluster;
  }
  return extents;
}

bool is_within(std::int64_t value, std::int64_t most) { return value >= 1 && value <= most; }

bool is_launchable(const Extents& extents) {
  const auto& [grid, block, cluster, shared] = extents;
  for (std::size_t i = 0; i < grid.size(); ++i) {
    if (!is_within(grid[i], i == 0 ? kWidestGrid : kTallestGrid) ||
        !is_within(block[i], i == 2 ? kDeepestBlock : kMaxThreads) ||
        !is_within(cluster[i], kLargestCluster) || grid[i] % cluster[i] != 0) {
      return false;
    }
  }
  return product(block) <= kMaxThreads && product(cluster) <= kLargestCluster && shared >= 0 &&
         shared <= kMaxSharedBytes;
}

// The blocks that no device with so many multiprocessors exceeds. How many registers a thread
// takes is not known here: the launch says so.
std::int64_t resident_blocks(const Extents& extents, int processors) {
  const std::int64_t warps = (product(extents.block) + kWarp - 1) / kWarp;
  const std::int64_t shared = extents.shared_bytes + kSharedBytesOfBlock;
  return processors * std::min({kResidentBlocks, kResidentThreads / (warps * kWarp),
                                kResidentSharedBytes / shared});
}

// Of a launch that some device can make.
std::string why_device_does_not_hold(const OwnOperation::Stage& stage, const Extents& extents,
                                     const kernels::SpaceTraits& traits) {
  const auto& [grid, block, cluster, shared] = extents;
  if (traits.architecture == 0) return {};
  if (product(cluster) > 1 && traits.architecture < kArchitectureOfClusters) {
    return std::format(
        "its cluster has {} x {} x {} blocks, but devices before compute capability 9.0 have no "
        "clusters, and this one has {}.{}",
        cluster[0], cluster[1], cluster[2], traits.architecture / 10, traits.architecture % 10);
  }
  if (const std::int64_t most = kernels::max_shared_bytes(traits.architecture); shared > most) {
    return std::format(
        "its shared memory is {} bytes, but a block of a device of compute capability {}.{} has at "
        "most {}",
        shared, traits.architecture / 10, traits.architecture % 10, most);
  }
  const double blocks = static_cast<double>(grid[0]) * static_cast<double>(grid[1] * grid[2]);
  if (stage.is_cooperative &&
      blocks > static_cast<double>(resident_blocks(extents, traits.processors))) {
    return std::format(
        "its cooperative grid has {:.0f} blocks, but the device's {} multiprocessors hold at most "
        "{} of {} threads and {} bytes of shared memory at once; take `{}` for the grid, or "
        "smaller blocks",
        blocks, traits.processors, resident_blocks(extents, traits.processors), product(block),
        shared, kProcessors);
  }
  return {};
}

// Why no device can make a launch.
std::string why_beyond_limits(const OwnOperation& own, const OwnOperation::Stage& stage,
                              const Values& values) {
  const auto check = [&](std::string_view field, const Expression& expression, std::int64_t least,
                         std::int64_t most) -> std::string {
    const auto value = expression.evaluate(values);
    if (value && *value >= least && *value <= most) return {};
    return explain_value(own, values, field, expression,
                         value ? std::format("is {}; it is {} to {}", *value, least, most)
                               : std::string(name(value.error())));
  };
  constexpr std::string_view kAxes[] = {"x", "y", "z"};
  for (std::size_t i = 0; i < 3; ++i) {
    std::string why = check(std::format("grid along {}", kAxes[i]), stage.grid[i], 1,
                            i == 0 ? kWidestGrid : kTallestGrid);
    if (why.empty()) {
      why = check(std::format("block along {}", kAxes[i]), stage.block[i], 1,
                  i == 2 ? kDeepestBlock : kMaxThreads);
    }
    if (why.empty() && stage.cluster) {
      const Expression& cluster = (*stage.cluster)[i];
      why = check(std::format("cluster along {}", kAxes[i]), cluster, 1, kLargestCluster);
      const std::int64_t grid = stage.grid[i].evaluate(values).value_or(0);
      if (why.empty() && grid % *cluster.evaluate(values) != 0) {
        why = explain_value(
            own, values, std::format("cluster along {}", kAxes[i]), cluster,
            std::format("does not divide the grid \"{}\" of {}", stage.grid[i].text(), grid));
      }
    }
    if (!why.empty()) return why;
  }
  std::string why = check("shared_memory", stage.shared_memory, 0, kMaxSharedBytes);
  if (!why.empty()) return why;
  const auto block = evaluate(stage.block, values);
  return block && product(*block) > kMaxThreads
             ? std::format("its block has more than {} threads", kMaxThreads)
             : std::format("its cluster has more than {} blocks", kLargestCluster);
}

}  // namespace

Status read_expressions(OwnOperation& own) {
  const Description& given = own.given;
  const auto parse = [&](std::string_view field, const std::string& text,
                         Expression& parsed) -> Status {
    auto expression = Expression::parse(text, own.names);
    if (!expression)
      return refuse_description(std::format("\"{}\": {}", field, expression.error().message));
    parsed = *std::move(expression);
    return {};
  };
  for (const Parameter& parameter : given.parameters) {
    auto& standard = own.standards_of_sizes.emplace_back();
    if (parameter.standard_of_sizes.empty()) continue;
    DORAJIT_TRY(parse("default", parameter.standard_of_sizes, standard.emplace()));
  }
  for (const Parameter& parameter : given.parameters) {
    own.names.push_back(parameter.name);
  }
  own.names.emplace_back(kProcessors);
  for (const Launch& launch : given.launches) {
    OwnOperation::Stage& stage = own.stages.emplace_back();
    for (std::size_t i = 0; i < 3; ++i) {
      DORAJIT_TRY(parse("grid", launch.grid[i], stage.grid[i]));
      DORAJIT_TRY(parse("block", launch.block[i], stage.block[i]));
    }
    DORAJIT_TRY(parse("shared_memory", launch.shared_memory, stage.shared_memory));
    stage.is_cooperative = launch.is_cooperative;
    if (!launch.cluster) continue;
    stage.cluster.emplace();
    for (std::size_t i = 0; i < 3; ++i) {
      DORAJIT_TRY(parse("cluster", (*launch.cluster)[i], (*stage.cluster)[i]));
    }
  }
  if (given.constraint.empty()) return {};
  own.constraint.emplace();
  DORAJIT_TRY(parse("constraint", given.constraint, *own.constraint));
  for (std::size_t i = 0; i < own.all_dimensions.size(); ++i) {
    kernels::Dimension& dimension = own.all_dimensions[i];
    // The stride of a last dimension is usually 1, which says nothing about rows.
    const auto is_last = [&](const std::vector<int>& strides) {
      return !strides.empty() && strides.back() == static_cast<int>(i);
    };
    const bool varies = dimension.keying == kernels::Keying::kBucketed ||
                        (dimension.keying == kernels::Keying::kStride &&
                         std::ranges::none_of(own.strides, is_last));
    dimension.limits_class = varies && own.constraint->reads(i);
  }
  return {};
}

Values values_of(const OwnOperation& own, const kernels::Sizes& sizes,
                 const kernels::Config& config, int processors) {
  Values values;
  const std::size_t count = own.all_dimensions.size();
  std::copy_n(sizes.begin(), count, values.begin());
  std::size_t at = count;
  for (const kernels::Tunable& tunable : config.tunables()) values[at++] = tunable.value;
  values[own.names.size() - 1] = processors;
  return values;
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

std::string explain_value(const OwnOperation& own, const Values& values, std::string_view field,
                          const Expression& expression, std::string_view what) {
  const std::string read = describe_values(own, values, expression);
  return std::format("its {} \"{}\" {}{}{}", field, expression.text(), what,
                     read.empty() ? "" : ", with ", read);
}

std::optional<kernels::StageShape> stage_shape(const OwnOperation::Stage& stage,
                                               const Values& values) {
  const auto extents = extents_of(stage, values);
  if (!extents || !is_launchable(*extents)) return std::nullopt;
  const auto& [grid, block, cluster, shared] = *extents;
  return kernels::StageShape{.grid_x = grid[0],
                             .grid_y = grid[1],
                             .grid_z = grid[2],
                             .threads = static_cast<int>(block[0]),
                             .threads_y = static_cast<int>(block[1]),
                             .threads_z = static_cast<int>(block[2]),
                             .shared_bytes = static_cast<int>(shared),
                             .cluster_x = static_cast<int>(cluster[0]),
                             .cluster_y = static_cast<int>(cluster[1]),
                             .cluster_z = static_cast<int>(cluster[2]),
                             .is_cooperative = stage.is_cooperative};
}

std::string why_not_launchable(const OwnOperation& own, const OwnOperation::Stage& stage,
                               const Values& values, const kernels::SpaceTraits& traits) {
  const auto extents = extents_of(stage, values);
  if (!extents || !is_launchable(*extents)) return why_beyond_limits(own, stage, values);
  return why_device_does_not_hold(stage, *extents, traits);
}

}  // namespace dorajit::own_kernels
