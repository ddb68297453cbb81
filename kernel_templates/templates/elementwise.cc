#include <format>

#include "kernel_templates/partial_sums.h"
#include "kernel_templates/templates/streaming_configs.h"

namespace dorajit::kernels {
namespace {

using enum CachePolicy;

constexpr int kMaxVectorsInFlight = 8;

// Built from the values that matter for bandwidth: vectors that a thread moves per row, and rows
// that it has in flight.
StreamingConfig streaming_config(int warps, int vectors, int rows, int unroll, CachePolicy policy,
                                 int width) {
  return cuda_config(warps, warps * kThreadsPerWarp * vectors, rows, unroll, policy, width);
}

// The configs that were fastest, or close to it, for some size on an H200 when every config of the
// grid was measured (docs/performance.md), and those that differ most from them, for other GPUs.
void add_slim(std::vector<Config>& space, int width) {
  const int half = half_width(width);
  add_once(space, {
                      streaming_config(1, 1, 1, 1, kDefault, half),
                      streaming_config(2, 1, 1, 1, kDefault, width),
                      streaming_config(2, 1, 1, 1, kStreamLoads, width),
                      streaming_config(4, 1, 1, 1, kStreamAll, half),
                      streaming_config(4, 2, 1, 1, kDefault, half),
                      streaming_config(8, 1, 1, 1, kDefault, width),
                      streaming_config(16, 1, 1, 1, kDefault, width),
                      streaming_config(1, 2, 2, 2, kStreamLoads, width),
                      streaming_config(2, 1, 2, 2, kDefault, width),
                      streaming_config(4, 1, 2, 2, kStreamLoads, width),
                      streaming_config(8, 1, 2, 2, kDefault, width),
                  });
}

void add_grid(std::vector<Config>& space, int width) {
  for (const int warps : {1, 2, 4, 8, 16}) {
    for (const int vectors : {1, 2, 4}) {
      for (const int rows : {1, 2, 4, 8, 16}) {
        for (const int unroll : {1, 2, 4}) {
          if (rows % unroll != 0 || vectors * unroll > 4) continue;
          for (const CachePolicy policy : {kDefault, kStreamAll, kStreamLoads}) {
            add_once(space, {streaming_config(warps, vectors, rows, unroll, policy, width)});
          }
        }
      }
    }
  }
}

void add_cuda_configs(std::vector<Config>& space, int width, SpaceKind kind) {
  if (kind == SpaceKind::kSlim) return add_slim(space, width);
  add_grid(space, width);
}

StreamingConfig default_cuda_config(int width) {
  return streaming_config(4, 1, 1, 1, kDefault, width);
}

CpuChoices cpu_choices(SpaceKind kind) {
  if (kind == SpaceKind::kSlim) return {{4096}, {1, 4}, {kDefault, kStreamAll}};
  return {{1024, 4096, 16384}, {1, 4, 16}, {kDefault, kStreamAll}};
}

constexpr StreamingSpace kSpace = {.builtin = kBuiltinElementwise,
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

// For a CUDA config that meets the assertions.
int vectors_in_flight(const StreamingConfig& config) {
  const int of_a_row =
      config.block_size / (config.num_warps * kThreadsPerWarp * config.vector_width);
  return of_a_row <= kMaxVectorsInFlight ? of_a_row * config.unroll : of_a_row;
}

std::string why_invalid(const Variant& variant, const SpaceTraits& traits, const Config& named) {
  const DeviceKind kind = traits.kind;
  const auto config = as_streaming(named);
  if (!config) return kNotAllowed;
  const bool is_valid =
      kind == DeviceKind::kCpu ? is_valid_for_cpu(*config) : is_valid_for_cuda_elementwise(*config);
  if (!is_valid) return kNotAllowed;
  std::string why = why_beyond_limits(variant, kind, *config, kTallestElementwiseProgram);
  if (why.empty() && kind == DeviceKind::kCuda &&
      vectors_in_flight(*config) > kMaxVectorsInFlight) {
    why = std::format("its threads have more than {} vectors in flight", kMaxVectorsInFlight);
  }
  return why;
}

LaunchShape shape_launch(const Variant&, const Config& config, const LaunchArguments& arguments,
                         int) {
  return {.run = matrix_stage(config, arguments), .work = elements_of_matrix(arguments)};
}

std::int64_t no_workspace(const Variant&, DeviceKind, const Sizes&) { return 0; }

}  // namespace

constinit const Template elementwise_template = {
    .name = "elementwise",
    .cuda_source = "cuda/elementwise.cuh",
    .cpu_source = "cpu/elementwise.h",
    .entry_macro = "DORAJIT_ELEMENTWISE_KERNEL",
    .builtin_config = as_config(kBuiltinElementwise),
    .default_config = choose_default,
    .config_space = list_configs,
    .why_config_is_invalid = why_invalid,
    .config_expression = streaming_expression,
    .launch_shape = shape_launch,
    .workspace_bytes = no_workspace,
    .verification_sizes = verified_matrices,
    .misfit = streaming_misfit,
};

}  // namespace dorajit::kernels
