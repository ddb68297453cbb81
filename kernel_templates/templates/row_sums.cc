#include <algorithm>
#include <cstdint>

#include "kernel_templates/sizes.h"
#include "kernel_templates/templates/streaming_configs.h"

namespace dorajit::kernels {
namespace {

using enum CachePolicy;

// `lanes`: lanes per row. `unroll`: passes over the columns in flight.
StreamingConfig sums_config(int warps, int lanes, int unroll, CachePolicy policy, int width) {
  return cuda_config(warps, lanes, warps * kThreadsPerWarp / lanes, unroll, policy, width);
}

void add_cuda_configs(std::vector<Config>& space, int width, SpaceKind kind) {
  for (const int warps : {4, 8}) {
    for (const int lanes : {8, 32}) {
      for (const int unroll : {1, 2, 4}) {
        if (kind == SpaceKind::kSlim && unroll == 1) continue;
        for (const CachePolicy policy : {kDefault, kStreamAll}) {
          if (kind == SpaceKind::kSlim && warps == 8 && policy == kStreamAll) continue;
          const StreamingConfig config = sums_config(warps, lanes, unroll, policy, width);
          if (is_valid_for_cuda_row_sums(config)) add_once(space, {config});
        }
      }
    }
  }
}

StreamingConfig default_cuda_config(int width) { return sums_config(4, 32, 2, kDefault, width); }

CpuChoices cpu_choices(SpaceKind kind) {
  if (kind == SpaceKind::kSlim) return {{4096}, {1, 16}, {kDefault}};
  return {{4096}, {1, 4, 16, 64}, {kDefault}};
}

constexpr StreamingSpace kSpace = {.builtin = kBuiltinRowSums,
                                   .default_cuda_config = default_cuda_config,
                                   .add_cuda_configs = add_cuda_configs,
                                   .cpu_choices = cpu_choices};

Config choose_default(const Variant& variant, const SpaceTraits& traits, int vector_width) {
  return default_config(kSpace, variant, traits, vector_width);
}

std::vector<Config> list_configs(const Variant& variant, const SpaceTraits& traits,
                                 int vector_width, SpaceKind kind) {
  return config_space(kSpace, variant, traits, vector_width, kind);
}

std::string why_invalid(const Variant& variant, const SpaceTraits& traits, const Config& named) {
  const DeviceKind kind = traits.kind;
  const auto config = as_streaming(named);
  if (!config) return kNotAllowed;
  const bool is_valid =
      kind == DeviceKind::kCpu ? is_valid_for_cpu(*config) : is_valid_for_cuda_row_sums(*config);
  if (!is_valid) return kNotAllowed;
  return why_beyond_limits(variant, kind, *config, kTallestSumProgram);
}

LaunchShape shape_launch(const Variant& variant, const Config& config,
                         const LaunchArguments& arguments, int) {
  const SumLayout layout = layout_of(variant, config, arguments);
  return {.run = {.grid_x = divide_up(layout.count() * arguments.sizes[kChannels],
                                      config[kRowsOfProgram]),
                  .threads = config[kWarps] * kThreadsPerWarp},
          .later = {finish_stage(variant, config, arguments)},
          .work = elements_of_matrix(arguments)};
}

// Includes a shape that gives every config seven partial sums, the last of them shorter: see
// column_sums.cc.
std::vector<Sizes> list_verification_sizes(const Variant& variant, const Sizes& problem) {
  std::vector<Sizes> sizes = verified_matrices(variant, problem);
  const std::int64_t cols = std::min<std::int64_t>(problem[kCols], 6 * kPartialColumns + 37);
  const std::int64_t samples_per_partial =
      sum_layout(Broadcast::kPerRow, 1, cols, 1, 1).rows_per_partial;
  // Odd, so that the scratch operands use all channels and all samples. A single channel could have
  // the right sum by chance.
  const std::int64_t samples = 6 * samples_per_partial + (samples_per_partial > 11 ? 11 : 1);
  const std::int64_t channels = samples * cols * 16 <= kReferenceElements ? 16 : 4;
  sizes.push_back({channels * samples, cols, channels});
  return sizes;
}

}  // namespace

constinit const Template row_sums_template = {
    .name = "row_sums",
    .cuda_source = "cuda/row_sums.cuh",
    .cpu_source = "cpu/row_sums.h",
    .entry_macro = "DORAJIT_ROW_SUMS_KERNEL",
    .stages = two_stages,
    .builtin_config = as_config(kBuiltinRowSums),
    .default_config = choose_default,
    .config_space = list_configs,
    .why_config_is_invalid = why_invalid,
    .config_expression = streaming_expression,
    .launch_shape = shape_launch,
    .workspace_bytes = sum_workspace,
    .verification_sizes = list_verification_sizes,
    .misfit = streaming_misfit,
};

}  // namespace dorajit::kernels
