#include "kernel_templates/templates/weight_norm.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "kernel_templates/partial_sums.h"
#include "kernel_templates/templates/matrix_tiles.h"

namespace dorajit::kernels {
namespace {

using enum NormInstruction;

constexpr int kFirstTensorCores = 80;  // the first architecture whose tensor cores multiply bf16
constexpr int kWgmmaArchitecture = 90;
constexpr int kWidestVector = 8;
constexpr int kChunkBytes = 16;
constexpr int kBuiltinRows = 64;
constexpr const char* kNotAllowed = "its template does not allow it";

bool has_pairs(const Variant& variant) {
  return has_factor_pairs(variant.types[kNormLoraA], variant.types[kNormLoraB]);
}

// Whether the tensor cores of a device multiply factors of these types. The bits depend on it.
bool uses_tensor_cores(const Variant& variant, const SpaceTraits& traits) {
  return traits.architecture >= kFirstTensorCores && compute_type(variant) != ElementType::kFloat64;
}

// Whether the tensor memory accelerator can load W, and A unless it is split: both are then aligned
// to 16 bytes.
bool can_use_wgmma(const Variant& variant, const SpaceTraits& traits, int vector_width) {
  const int size = size_in_bytes(variant.types[kNormWeight]);
  return traits.architecture == kWgmmaArchitecture && uses_tensor_cores(variant, traits) &&
         (size == 2 || has_pairs(variant)) && vector_width * size == kChunkBytes;
}

Config cpu_config(int rows, int workers) { return {{kWarps, workers}, {kRowsOfProgram, rows}}; }

WeightNormConfig wgmma(int rows, int rank_step, int stages, int units, int parts,
                       int vector_width = kWidestVector) {
  return {.instruction = kWgmma,
          .rows = rows,
          .columns = 128,
          .rank_step = rank_step,
          .stages = stages,
          .weight_units = units,
          .max_parts = parts,
          .vector_width = vector_width};
}

WeightNormConfig wgmma_stream(int stages, int units, int parts, int vector_width = kWidestVector) {
  WeightNormConfig config = wgmma(128, kNormRankBlock, stages, units, parts, vector_width);
  config.instruction = kWgmmaStream;
  return config;
}

// Copies of narrow elements leave too few registers for longer steps.
int max_rank_step(int vector_width) { return vector_width == kWidestVector ? 64 : 32; }

WeightNormConfig mma(int rows, int rank_step, int stages, int parts, int vector_width) {
  return {.instruction = kMma,
          .rows = rows,
          .columns = 64,
          .rank_step = rank_step,
          .stages = stages,
          .max_parts = parts,
          .vector_width = vector_width};
}

WeightNormConfig scalar(int parts) {
  return {.instruction = kScalar, .stages = 0, .max_parts = parts};
}

Config choose_default(const Variant& variant, const SpaceTraits& traits, int vector_width) {
  if (traits.kind == DeviceKind::kCpu) return cpu_config(kBuiltinRows, traits.processors);
  if (!uses_tensor_cores(variant, traits)) return as_config(scalar(4));
  if (can_use_wgmma(variant, traits, vector_width)) {
    return as_config(wgmma(64, 64, 3, 4, 4, vector_width));
  }
  return as_config(mma(64, 32, 3, 4, vector_width));
}

// Where shared memory does not hold the rows of B.
Config choose_for_sizes(const Variant& variant, const SpaceTraits& traits, int vector_width,
                        const Sizes& sizes) {
  const Config usual = choose_default(variant, traits, vector_width);
  const bool fits =
      weight_norm_template.why_config_does_not_fit(variant, traits, sizes, usual).empty();
  return fits ? usual : as_config(wgmma_stream(4, 2, 4, vector_width));
}

void add_once(std::vector<Config>& space, const Config& config) {
  if (!std::ranges::contains(space, config)) space.push_back(config);
}

void add_cpu(std::vector<Config>& space, int processors, SpaceKind kind) {
  for (const int rows : {128, 64, 32, 16}) {
    for (int workers = processors; workers >= 1; workers /= 2) {
      add_once(space, cpu_config(rows, workers));
      if (kind == SpaceKind::kSlim && processors / workers >= 2) break;
    }
  }
}

void add_wgmma(std::vector<Config>& space, int vector_width, SpaceKind kind) {
  const auto add = [&](WeightNormConfig config) {
    config.vector_width = vector_width;
    add_once(space, as_config(config));
  };
  if (kind == SpaceKind::kSlim) {
    for (const WeightNormConfig& config :
         {wgmma(128, 64, 6, 2, 2), wgmma(128, 64, 6, 2, 4), wgmma(128, 64, 6, 2, 8),
          wgmma(128, 64, 4, 4, 1), wgmma(128, 64, 4, 4, 2), wgmma(128, 64, 4, 4, 4),
          wgmma(128, 16, 4, 4, 1), wgmma(128, 16, 4, 4, 2), wgmma(128, 16, 4, 4, 4),
          wgmma(64, 64, 4, 8, 4), wgmma(64, 64, 4, 8, 8), wgmma(64, 16, 4, 4, 8),
          wgmma_stream(4, 2, 4), wgmma_stream(4, 2, 8), wgmma_stream(5, 2, 2),
          wgmma_stream(5, 2, 4)}) {
      add(config);
    }
    return;
  }
  for (const int stages : {2, 3, 4, 5}) {
    for (const int units : {1, 2}) {
      for (const int parts : {1, 2, 4, 8}) add(wgmma_stream(stages, units, parts));
    }
  }
  for (const int rows : {64, 128}) {
    for (const int rank_step : {16, 32, 64}) {
      for (const int stages : {3, 4, 6, 8}) {
        for (const int units : {2, 4, 6, 8, 12}) {
          for (const int parts : {1, 2, 4, 8}) add(wgmma(rows, rank_step, stages, units, parts));
        }
      }
    }
  }
}

void add_mma(std::vector<Config>& space, int vector_width, SpaceKind kind) {
  const bool is_slim = kind == SpaceKind::kSlim;
  for (const int parts : {1, 2, 4, 8}) {
    add_once(space, as_config(mma(64, max_rank_step(vector_width), 3, parts, vector_width)));
    add_once(space, as_config(mma(64, 16, 4, parts, vector_width)));
    if (is_slim) continue;
    for (const int rows : {64, 128}) {
      for (const int rank_step : {16, 32, 64}) {
        if (rank_step > max_rank_step(vector_width)) continue;
        for (const int stages : {2, 3, 4}) {
          add_once(space, as_config(mma(rows, rank_step, stages, parts, vector_width)));
        }
      }
    }
  }
}

std::vector<Config> list_configs(const Variant& variant, const SpaceTraits& traits,
                                 int vector_width, SpaceKind kind) {
  std::vector<Config> space = {choose_default(variant, traits, vector_width)};
  if (traits.kind == DeviceKind::kCpu) {
    add_cpu(space, traits.processors, kind);
  } else if (!uses_tensor_cores(variant, traits)) {
    for (const int parts : {1, 2, 8}) add_once(space, as_config(scalar(parts)));
  } else if (can_use_wgmma(variant, traits, vector_width)) {
    add_wgmma(space, vector_width, kind);
  } else {
    add_mma(space, vector_width, kind);
  }
  std::erase_if(space, [&](const Config& config) {
    return !weight_norm_template.why_config_is_invalid(variant, traits, config).empty();
  });
  return space;
}

bool is_among(int value, std::initializer_list<int> values) {
  return std::ranges::contains(values, value);
}

bool has_known_sizes(const WeightNormConfig& config) {
  if (!is_among(config.max_parts, {1, 2, 4, kMaxNormParts}) ||
      !is_among(config.vector_width, {1, 2, 4, kWidestVector})) {
    return false;
  }
  switch (config.instruction) {
    case kScalar:
      return config == scalar(config.max_parts);
    case kMma:
      return config.columns == 64 && is_among(config.rows, {64, 128}) &&
             is_among(config.rank_step, {16, 32, 64}) &&
             config.rank_step <= max_rank_step(config.vector_width) && config.stages >= 2 &&
             config.stages <= 8 && config.weight_units == 0;
    case kWgmma:
      return config.columns == 128 && is_among(config.rows, {64, 128}) &&
             is_among(config.rank_step, {16, 32, 64}) && config.stages >= 2 &&
             config.stages <= 16 && config.weight_units >= 1 && config.weight_units <= 16;
    case kWgmmaStream:
      return config == wgmma_stream(config.stages, config.weight_units, config.max_parts,
                                    config.vector_width) &&
             config.stages >= 2 && config.stages <= 8 && config.weight_units >= 1 &&
             config.weight_units <= 8;
  }
  return false;
}

std::string why_invalid(const Variant& variant, const SpaceTraits& traits, const Config& config) {
  if (traits.kind == DeviceKind::kCpu) {
    const bool is_own = config == cpu_config(config[kRowsOfProgram], config[kWarps]) &&
                        is_among(config[kRowsOfProgram], {16, 32, 64, 128}) && config[kWarps] >= 1;
    return is_own ? "" : kNotAllowed;
  }
  const WeightNormConfig own = norm_config_from(config);
  if (as_config(own) != config || !has_known_sizes(own)) return kNotAllowed;
  if ((own.instruction != kScalar) != uses_tensor_cores(variant, traits)) {
    return "its instruction is not the one for these element types on this architecture";
  }
  if (own.instruction >= kWgmma && !can_use_wgmma(variant, traits, own.vector_width)) {
    return "it uses wgmma, which needs sm_90, rows of W aligned to 16 bytes, and W of 16 bits or "
           "factors that are split";
  }
  return why_beyond_shared_memory(norm_shared_bytes(own, 1), traits);
}

std::string why_not_for(const Variant& variant, const SpaceTraits& traits, const Sizes& sizes,
                        const Config& config) {
  if (traits.kind == DeviceKind::kCpu) return {};
  const WeightNormConfig own = norm_config_from(config);
  const std::int64_t rank = factor_rank(variant, sizes[kNormRank]);
  if (wgmma_streams(own) && wgmma_blocks(rank) <= wgmma_resident_blocks(own, rank)) {
    return "shared memory holds all of lora_B";
  }
  return why_beyond_shared_memory(norm_shared_bytes(own, rank), traits);
}

std::int64_t count_workspace(const Variant& variant, DeviceKind kind, const Sizes& sizes) {
  const std::int64_t rows = sizes[kNormRows];
  const std::int64_t columns = sizes[kNormColumns];
  if (kind == DeviceKind::kCuda && has_pairs(variant) &&
      compute_type(variant) != ElementType::kFloat64) {
    return factor_pair_layout(rows, columns, sizes[kNormRank]).bytes;
  }
  const long long parts = norm_parts(columns, kMaxNormParts).count;
  return parts > 1 ? parts * rows * size_in_bytes(compute_type(variant)) : 0;
}

std::span<const std::string_view> list_stages(const Variant& variant) {
  static constexpr std::string_view kPaired[] = {"exponents", "split", "kernel", "finish"};
  return has_pairs(variant) ? kPaired : two_stages(variant);
}

// Rows that no program of any config divides evenly, several spans of columns and an end within a
// span, and the full rank; few enough for the host. At least a span of columns: of a few columns,
// all may cancel in some row, whose error would exceed the tolerance.
std::vector<Sizes> list_verification_sizes(const Variant&, const Sizes& problem) {
  constexpr std::int64_t kMaxColumns = 2048;
  constexpr std::int64_t kMaxProducts = 1 << 26;
  const std::int64_t given = problem[kNormColumns];
  const std::int64_t columns = given > kMaxColumns ? kMaxColumns + given % kNormSpan
                               : given < kNormSpan ? kNormSpan + given
                                                   : given;
  const std::int64_t rank = problem[kNormRank];
  const std::int64_t rows = std::clamp<std::int64_t>(kMaxProducts / (columns * (rank + 1)), 3, 195);
  return {{rows, columns, rank},
          {rows, columns, rank},
          {std::max<std::int64_t>(1, rows / 2), std::max<std::int64_t>(1, columns - 3), rank}};
}

}  // namespace

extern constinit const Template weight_norm_template = {
    .name = "weight_norm",
    .cuda_source = "cuda/weight_norm.cuh",
    .cpu_source = "cpu/weight_norm.h",
    .entry_macro = "DORAJIT_WEIGHT_NORM_KERNEL",
    .stages = list_stages,
    .specific_architecture = kWgmmaArchitecture,
    .builtin_config = {{kWarps, 1}, {kRowsOfProgram, kBuiltinRows}},
    .default_config = choose_default,
    .default_for_sizes = choose_for_sizes,
    .config_space = list_configs,
    .why_config_is_invalid = why_invalid,
    .config_expression = norm_config_expression,
    .launch_shape = shape_norm_launch,
    .workspace_bytes = count_workspace,
    .verification_sizes = list_verification_sizes,
    .why_config_does_not_fit = why_not_for,
    .tensor_boxes = list_norm_boxes,
};

}  // namespace dorajit::kernels
