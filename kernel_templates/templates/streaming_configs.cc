#include "kernel_templates/templates/streaming_configs.h"

#include <algorithm>
#include <cmath>
#include <format>

#include "kernel_templates/sizes.h"

namespace dorajit::kernels {
namespace {

// The code of a thread, and its compile time, grow with these values. No space has more than 8.
constexpr int kMaxUnroll = 8;
constexpr int kWidestCpuBlock = 1 << 16;

StreamingConfig cpu_config(int block_size, int workers, int rows, CachePolicy policy) {
  return {.block_size = block_size,
          .num_warps = workers,
          .rows_per_program = rows,
          .vector_width = 1,
          .unroll = 1,
          .cache_policy = policy};
}

// One, all, and one value in between; in the comprehensive space also 2, 8, 32 and so on.
std::vector<int> worker_choices(int processors, SpaceKind kind) {
  std::vector<int> choices = {1};
  if (kind == SpaceKind::kComprehensive) {
    for (int workers = 2; workers < processors; workers *= 4) choices.push_back(workers);
  } else {
    int middle = 1;
    while (middle * middle < processors) middle *= 2;
    if (middle > 1 && middle < processors) choices.push_back(middle);
  }
  if (processors > 1) choices.push_back(processors);
  return choices;
}

void add_cpu(std::vector<Config>& space, const CpuChoices& choices, int processors,
             SpaceKind kind) {
  for (const int block : choices.blocks) {
    for (const int rows : choices.rows) {
      for (const CachePolicy policy : choices.policies) {
        for (const int workers : worker_choices(processors, kind)) {
          add_once(space, {cpu_config(block, workers, rows, policy)});
        }
      }
    }
  }
}

// Enough rows for two programs of the tallest elementwise config and a remainder, but few enough
// for the host reference.
constexpr std::int64_t kVerifiedRows = 2 * kTallestElementwiseProgram + 12;

// Longer rows are cut to this, with the same end within a vector or block of any config.
constexpr std::int64_t kMaxCols = kReferenceElements;
constexpr std::int64_t kWidestBlock = 1 << 16;

}  // namespace

const Template& formula_template(const Variant& variant) {
  if (!variant.has_sum()) return elementwise_template;
  return variant.broadcast == Broadcast::kPerRow ? row_sums_template : column_sums_template;
}

StreamingConfig cuda_config(int warps, int lanes, int rows, int unroll, CachePolicy policy,
                            int width) {
  return {.block_size = lanes * width,
          .num_warps = warps,
          .rows_per_program = rows,
          .vector_width = width,
          .unroll = unroll,
          .cache_policy = policy};
}

std::optional<StreamingConfig> as_streaming(const Config& config) {
  const StreamingConfig streaming{.block_size = config[kColumnsOfProgram],
                                  .num_warps = config[kWarps],
                                  .rows_per_program = config[kRowsOfProgram],
                                  .vector_width = config[kVectorWidth],
                                  .unroll = config[kUnroll],
                                  .cache_policy = static_cast<CachePolicy>(config[kCaching])};
  if (as_config(streaming) != config) return std::nullopt;
  return streaming;
}

std::string streaming_expression(const Config& config) {
  return std::format(
      "dorajit::kernels::StreamingConfig{{{}, {}, {}, {}, {}, "
      "static_cast<dorajit::kernels::CachePolicy>({})}}",
      config[kColumnsOfProgram], config[kWarps], config[kRowsOfProgram], config[kVectorWidth],
      config[kUnroll], config[kCaching]);
}

void add_once(std::vector<Config>& space, std::initializer_list<StreamingConfig> configs) {
  for (const StreamingConfig& config : configs) {
    const Config named = as_config(config);
    if (!std::ranges::contains(space, named)) space.push_back(named);
  }
}

Config default_config(const StreamingSpace& space, const Variant& variant,
                      const SpaceTraits& traits, int vector_width) {
  if (traits.kind == DeviceKind::kCuda) {
    return as_config(
        space.default_cuda_config(std::min(vector_width, widest_vector(variant, traits.kind))));
  }
  Config config = as_config(space.builtin);
  config.set(kWarps, traits.processors);
  return config;
}

std::vector<Config> config_space(const StreamingSpace& space, const Variant& variant,
                                 const SpaceTraits& traits, int vector_width, SpaceKind kind) {
  std::vector<Config> configs = {default_config(space, variant, traits, vector_width)};
  if (traits.kind == DeviceKind::kCpu) {
    add_cpu(configs, space.cpu_choices(kind), traits.processors, kind);
    return configs;
  }
  const int width = configs.front()[kVectorWidth];
  space.add_cuda_configs(configs, width, kind);
  if (kind == SpaceKind::kComprehensive && width > 1) {
    space.add_cuda_configs(configs, width / 2, kind);
  }
  return configs;
}

StageShape matrix_stage(const Config& config, const KernelArguments& arguments) {
  return {.grid_x = divide_up(arguments.sizes[kCols], config[kColumnsOfProgram]),
          .grid_y = divide_up(arguments.sizes[kRows], config[kRowsOfProgram]),
          .threads = config[kWarps] * kThreadsPerWarp};
}

double elements_of_matrix(const KernelArguments& arguments) {
  return static_cast<double>(arguments.sizes[kRows]) * static_cast<double>(arguments.sizes[kCols]);
}

double streaming_misfit(const Variant&, const SpaceTraits& traits, const Sizes& sizes,
                        const Config& config) {
  constexpr double kPenaltyPerDoubling = 8;
  if (traits.kind == DeviceKind::kCpu) return 0;
  const double blocks =
      static_cast<double>(config[kColumnsOfProgram]) / static_cast<double>(sizes[kCols]);
  return blocks > 1 ? kPenaltyPerDoubling * std::log2(blocks) : 0;
}

std::string why_beyond_limits(const Variant& variant, DeviceKind kind,
                              const StreamingConfig& config, int tallest_program) {
  if (config.cache_policy < CachePolicy::kDefault ||
      config.cache_policy > CachePolicy::kStreamLoads) {
    return "it has an unknown cache policy";
  }
  const int widest = widest_vector(variant, kind);
  if (config.vector_width > widest) {
    return std::format("its vectors of {} elements are wider than {}", config.vector_width, widest);
  }
  if (config.unroll > kMaxUnroll) {
    return std::format("it has {} rows in flight, more than {}", config.unroll, kMaxUnroll);
  }
  if (config.rows_per_program > tallest_program) {
    return std::format("its programs of {} rows are taller than {}", config.rows_per_program,
                       tallest_program);
  }
  if (kind == DeviceKind::kCpu && config.block_size > kWidestCpuBlock) {
    return std::format("its programs of {} columns are wider than {}", config.block_size,
                       kWidestCpuBlock);
  }
  return {};
}

SumLayout layout_of(const Variant& variant, const Config& config,
                    const KernelArguments& arguments) {
  return sum_layout(variant.broadcast, arguments.sizes[kRows], arguments.sizes[kCols],
                    arguments.sizes[kChannels], config[kRowsOfProgram]);
}

StageShape finish_stage(const Variant& variant, const Config& config,
                        const KernelArguments& arguments) {
  if (layout_of(variant, config, arguments).count() == 1) return {};
  return {.grid_x = divide_up(arguments.sizes[kChannels], kChannelsPerFinish),
          .threads = kFinishLanes * kChannelsPerFinish};
}

std::int64_t sum_workspace(const Variant& variant, DeviceKind, const Sizes& sizes) {
  if (sizes[kRows] == 0 || sizes[kCols] == 0) return 0;
  return sum_workspace_bytes(
      variant.broadcast, sizes[kRows], sizes[kCols], sizes[kChannels],
      std::int64_t{variant.operation->num_sums()} * size_in_bytes(compute_type(variant)));
}

std::vector<Sizes> verified_matrices(const Variant& variant, const Sizes& problem) {
  const std::int64_t num_cols = problem[kCols];
  const std::int64_t cols = num_cols <= kMaxCols ? num_cols : kMaxCols + num_cols % kWidestBlock;
  const std::int64_t rows = std::clamp<std::int64_t>(kReferenceElements / cols, 1, kVerifiedRows);
  const std::int64_t ragged_cols = cols > 3 ? cols - 3 : cols;
  const Sizes complete = with_derived(variant, Sizes{rows, cols});
  return {complete, complete,
          with_derived(variant, Sizes{std::max<std::int64_t>(1, rows / 2), ragged_cols})};
}

}  // namespace dorajit::kernels
