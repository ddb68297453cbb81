#include <algorithm>
#include <cstdint>

#include "kernel_templates/integer_types.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/templates/matrix_tiles.h"
#include "kernel_templates/templates/streaming_configs.h"

namespace dorajit::kernels {
namespace {

using enum CachePolicy;

// `column_lanes` threads lie side by side along the columns, the remaining ones along the rows.
StreamingConfig sums_config(int warps, int column_lanes, int rows, int unroll, CachePolicy policy,
                            int width) {
  return cuda_config(warps, column_lanes, rows, unroll, policy, width);
}

// Of a program on CUDA: with several sums, the rows in flight, and after them, in the same memory,
// the nodes of its lanes (RowRing in cuda/column_sums.cuh).
std::int64_t shared_bytes_of(const Variant& variant, const Config& config) {
  const Operation& operation = *variant.operation;
  if (operation.num_sums() < 2 || config[kVectorWidth] < 2) return 0;
  std::int64_t row = 0;  // bytes of an element of each matrix input
  for (std::size_t i = 0; i < operation.operands.size(); ++i) {
    const Operand& operand = operation.operands[i];
    if (operand.role == OperandRole::kInput && operand.shape.is_matrix() && variant.has(i)) {
      row += element_size(variant.types[i]);
    }
  }
  const std::int64_t node =
      std::int64_t{operation.num_sums()} * size_in_bytes(compute_type(variant));
  const std::int64_t elements =
      std::int64_t{config[kWarps]} * kThreadsPerWarp * config[kVectorWidth];
  return elements * std::max(config[kUnroll] * row, node);
}

void add_slim(std::vector<Config>& space, int width) {
  const int half = half_width(width);
  add_once(space, {
                      sums_config(16, 16, 256, 8, kDefault, width),
                      sums_config(8, 8, 256, 4, kDefault, width),
                      sums_config(8, 8, 256, 8, kStreamLoads, width),
                      sums_config(4, 4, 256, 8, kDefault, width),
                      sums_config(8, 4, 512, 8, kDefault, width),
                      sums_config(16, 16, 512, 4, kDefault, width),
                      sums_config(8, 16, 2048, 8, kDefault, width),
                      sums_config(8, 32, 2048, 8, kDefault, width),
                      sums_config(8, 16, 256, 2, kDefault, width),
                      sums_config(8, 32, 2048, 4, kDefault, half),
                      sums_config(16, 64, 2048, 4, kDefault, half),
                  });
}

// The last three are for few rows or columns.
void add_slim_of_several(std::vector<Config>& space, int width) {
  const int half = half_width(width);
  add_once(space, {
                      sums_config(16, 16, 256, 4, kStreamAll, width),
                      sums_config(8, 16, 256, 8, kDefault, width),
                      sums_config(8, 32, 256, 4, kDefault, width),
                      sums_config(8, 8, 256, 4, kDefault, width),
                      sums_config(8, 8, 256, 8, kDefault, width),
                      sums_config(4, 4, 256, 8, kDefault, width),
                      sums_config(16, 16, 512, 4, kDefault, half),
                      sums_config(8, 4, 512, 8, kDefault, half),
                      sums_config(8, 16, 256, 2, kDefault, half),
                  });
}

void add_grid(std::vector<Config>& space, int width) {
  for (const int warps : {2, 4, 8, 16}) {
    for (const int lanes : {4, 8, 16, 32, 64}) {
      for (const int rows : {256, 512, 1024, 2048}) {
        for (const int unroll : {1, 2, 4, 8}) {
          for (const CachePolicy policy : {kDefault, kStreamAll, kStreamLoads}) {
            const StreamingConfig config = sums_config(warps, lanes, rows, unroll, policy, width);
            if (is_valid_for_cuda_column_sums(config)) add_once(space, {config});
          }
        }
      }
    }
  }
}

template <void (*kAddSlim)(std::vector<Config>&, int)>
void add_cuda_configs(std::vector<Config>& space, int width, SpaceKind kind) {
  if (kind == SpaceKind::kSlim) return kAddSlim(space, width);
  add_grid(space, width);
}

StreamingConfig default_cuda_config(int width) {
  return sums_config(16, 16, 256, 4, kDefault, width);
}

CpuChoices cpu_choices(SpaceKind kind) {
  if (kind == SpaceKind::kSlim) return {{1024, 4096}, {256}, {kDefault}};
  return {{1024, 4096, 16384}, {256, 512, 1024}, {kDefault}};
}

constexpr StreamingSpace space(void (*add_cuda)(std::vector<Config>&, int, SpaceKind)) {
  return {.builtin = kBuiltinColumnSums,
          .default_cuda_config = default_cuda_config,
          .add_cuda_configs = add_cuda,
          .cpu_choices = cpu_choices};
}
constexpr StreamingSpace kOneSum = space(add_cuda_configs<add_slim>);
constexpr StreamingSpace kSeveralSums = space(add_cuda_configs<add_slim_of_several>);

const StreamingSpace& space_of(const Variant& variant) {
  return variant.operation->num_sums() > 1 ? kSeveralSums : kOneSum;
}

Config choose_default(const Variant& variant, const SpaceTraits& traits, int vector_width) {
  Config config = default_config(space_of(variant), variant, traits, vector_width);
  if (traits.kind == DeviceKind::kCpu) return config;
  while (shared_bytes_of(variant, config) > max_shared_bytes(traits.architecture)) {
    config.set(kUnroll, config[kUnroll] / 2);
  }
  return config;
}

std::vector<Config> list_configs(const Variant& variant, const SpaceTraits& traits,
                                 int vector_width, SpaceKind kind) {
  std::vector<Config> configs =
      config_space(space_of(variant), variant, traits, vector_width, kind);
  if (traits.kind == DeviceKind::kCpu || variant.operation->num_sums() == 1) return configs;
  std::erase_if(configs, [&](const Config& config) {
    // The trees of several sums over many rows do not fit the registers of large programs.
    return (config[kWarps] >= 16 && config[kRowsOfProgram] > 512) ||
           shared_bytes_of(variant, config) > max_shared_bytes(traits.architecture);
  });
  return configs;
}

std::string why_invalid(const Variant& variant, const SpaceTraits& traits, const Config& named) {
  const DeviceKind kind = traits.kind;
  const auto config = as_streaming(named);
  if (!config) return kNotAllowed;
  const bool is_valid = kind == DeviceKind::kCpu ? is_valid_for_cpu_column_sums(*config)
                                                 : is_valid_for_cuda_column_sums(*config);
  if (!is_valid) return kNotAllowed;
  std::string why = why_beyond_limits(variant, kind, *config, kTallestSumProgram);
  if (kind == DeviceKind::kCpu || !why.empty()) return why;
  return why_beyond_shared_memory(shared_bytes_of(variant, named), traits);
}

LaunchShape shape_launch(const Variant& variant, const Config& config,
                         const LaunchArguments& arguments, int) {
  StageShape run = matrix_stage(config, arguments);
  run.shared_bytes = static_cast<int>(shared_bytes_of(variant, config));
  return {.run = run,
          .later = {finish_stage(variant, config, arguments)},
          .work = elements_of_matrix(arguments)};
}

// Shapes that give every config seven partial sums, the last of them shorter. Their number, and the
// number of leaves in the last one, have three bits set, so that no wrong order of the tree gives
// the right sum. If there are few columns, a second shape fills complete blocks.
std::vector<Sizes> list_verification_sizes(const Variant& variant, const Sizes& problem) {
  constexpr std::int64_t kTallest = kTallestSumProgram;
  const std::int64_t few = std::min<std::int64_t>(problem[kCols], 19);
  const std::int64_t many = std::min<std::int64_t>(problem[kCols], 261);
  std::vector<Sizes> sizes = verified_matrices(variant, problem);
  sizes.push_back({6 * kTallest + 85, few, few});
  sizes.push_back({kTallest + 85, many, many});
  return sizes;
}

}  // namespace

constinit const Template column_sums_template = {
    .name = "column_sums",
    .cuda_source = "cuda/column_sums.cuh",
    .cpu_source = "cpu/column_sums.h",
    .entry_macro = "DORAJIT_COLUMN_SUMS_KERNEL",
    .stages = two_stages,
    .builtin_config = as_config(kBuiltinColumnSums),
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
