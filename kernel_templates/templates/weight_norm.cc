#include "kernel_templates/templates/weight_norm.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "kernel_templates/partial_sums.h"
#include "kernel_templates/templates/matrix_tiles.h"

namespace dorajit::kernels {
namespace {

using enum NormInstruction;

enum Operand : std::size_t { kWeight, kLoraA, kLoraB };

constexpr int kFirstTensorCores = 80;  // the first architecture whose tensor cores multiply bf16
constexpr int kWgmmaArchitecture = 90;
constexpr int kWidestVector = 8;
constexpr int kBuiltinRows = 64;
constexpr const char* kNotAllowed = "its template does not allow it";

// How a device multiplies factors of these types. The bits of the products depend on it.
enum class Multiplier { kScalar, kTensorCores, kSplit };

Multiplier multiplier(const Variant& variant, const SpaceTraits& traits) {
  const ElementType a = variant.types[kLoraA];
  if (a == variant.types[kLoraB] && size_in_bytes(a) == 2) {
    return traits.architecture >= kFirstTensorCores ? Multiplier::kTensorCores
                                                    : Multiplier::kScalar;
  }
  return traits.architecture == kWgmmaArchitecture && compute_type(variant) != ElementType::kFloat64
             ? Multiplier::kSplit
             : Multiplier::kScalar;
}

Multiplier multiplier(NormInstruction instruction) {
  switch (instruction) {
    case kMma:
    case kWgmma:
    case kWgmmaStream:
      return Multiplier::kTensorCores;
    case kSplit:
      return Multiplier::kSplit;
    case kScalar:
      break;
  }
  return Multiplier::kScalar;
}

// Whether the tensor memory accelerator can load W and A: both are then aligned to 16 bytes.
bool can_use_wgmma(const Variant& variant, const SpaceTraits& traits) {
  return traits.architecture == kWgmmaArchitecture &&
         multiplier(variant, traits) == Multiplier::kTensorCores &&
         size_in_bytes(variant.types[kWeight]) == 2;
}

Config cpu_config(int rows, int workers) { return {{kWarps, workers}, {kRowsOfProgram, rows}}; }

WeightNormConfig wgmma(int rows, int rank_step, int stages, int units, int parts) {
  return {.instruction = kWgmma,
          .rows = rows,
          .columns = 128,
          .rank_step = rank_step,
          .stages = stages,
          .weight_units = units,
          .max_parts = parts,
          .vector_width = kWidestVector};
}

WeightNormConfig wgmma_stream(int stages, int units, int parts) {
  WeightNormConfig config = wgmma(128, kNormRankBlock, stages, units, parts);
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

WeightNormConfig split(int parts, int vector_width) {
  return {.instruction = kSplit,
          .rows = kSplitRows,
          .columns = kSplitColumns,
          .rank_step = kNormRankBlock,
          .stages = kSplitStages,
          .max_parts = parts,
          .vector_width = vector_width};
}

// For A and W: four neighbouring elements of a row at a time, or one.
int split_vector(int vector_width) { return vector_width >= 4 ? 4 : 1; }

// The default config supports every rank.
Config choose_default(const Variant& variant, const SpaceTraits& traits, int vector_width) {
  if (traits.kind == DeviceKind::kCpu) return cpu_config(kBuiltinRows, traits.processors);
  switch (multiplier(variant, traits)) {
    case Multiplier::kScalar:
      return as_config(scalar(4));
    case Multiplier::kSplit:
      return as_config(split(4, split_vector(vector_width)));
    case Multiplier::kTensorCores:
      break;
  }
  if (vector_width == kWidestVector && can_use_wgmma(variant, traits)) {
    return as_config(wgmma(64, 64, 3, 4, 4));
  }
  return as_config(mma(64, 32, 3, 4, vector_width));
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

void add_wgmma(std::vector<Config>& space, SpaceKind kind) {
  if (kind == SpaceKind::kSlim) {
    for (const WeightNormConfig& config :
         {wgmma(128, 64, 6, 2, 2), wgmma(128, 64, 6, 2, 4), wgmma(128, 64, 6, 2, 8),
          wgmma(128, 64, 4, 4, 1), wgmma(128, 64, 4, 4, 2), wgmma(128, 64, 4, 4, 4),
          wgmma(128, 16, 4, 4, 1), wgmma(128, 16, 4, 4, 2), wgmma(128, 16, 4, 4, 4),
          wgmma(64, 64, 4, 8, 4), wgmma(64, 64, 4, 8, 8), wgmma(64, 16, 4, 4, 8),
          wgmma_stream(4, 2, 4), wgmma_stream(4, 2, 8), wgmma_stream(5, 2, 2),
          wgmma_stream(5, 2, 4)}) {
      add_once(space, as_config(config));
    }
    return;
  }
  for (const int stages : {2, 3, 4, 5}) {
    for (const int units : {1, 2}) {
      for (const int parts : {1, 2, 4, 8}) {
        add_once(space, as_config(wgmma_stream(stages, units, parts)));
      }
    }
  }
  for (const int rows : {64, 128}) {
    for (const int rank_step : {16, 32, 64}) {
      for (const int stages : {3, 4, 6, 8}) {
        for (const int units : {2, 4, 6, 8, 12}) {
          for (const int parts : {1, 2, 4, 8}) {
            add_once(space, as_config(wgmma(rows, rank_step, stages, units, parts)));
          }
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
  } else if (multiplier(variant, traits) == Multiplier::kScalar) {
    for (const int parts : {1, 2, 8}) add_once(space, as_config(scalar(parts)));
  } else if (multiplier(variant, traits) == Multiplier::kSplit) {
    for (const int parts : {1, 2, 8}) {
      add_once(space, as_config(split(parts, split_vector(vector_width))));
    }
  } else if (vector_width == kWidestVector && can_use_wgmma(variant, traits)) {
    add_wgmma(space, kind);
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
             config.stages <= 16 && config.weight_units >= 1 && config.weight_units <= 16 &&
             config.vector_width == kWidestVector;
    case kWgmmaStream:
      return config == wgmma_stream(config.stages, config.weight_units, config.max_parts) &&
             config.stages >= 2 && config.stages <= 8 && config.weight_units >= 1 &&
             config.weight_units <= 8;
    case kSplit:
      return config == split(config.max_parts, split_vector(config.vector_width));
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
  if (multiplier(own.instruction) != multiplier(variant, traits)) {
    return "its instruction is not the one for these element types on this architecture";
  }
  if ((own.instruction == kWgmma || wgmma_streams(own)) && !can_use_wgmma(variant, traits)) {
    return "it uses wgmma, which needs sm_90 and W of 16 bits";
  }
  return why_beyond_shared_memory(norm_shared_bytes(own, 1), traits);
}

std::string why_not_for(const Variant&, const SpaceTraits& traits, const Sizes& sizes,
                        const Config& config) {
  if (traits.kind == DeviceKind::kCpu) return {};
  const WeightNormConfig own = norm_config_from(config);
  const std::int64_t rank = sizes[kNormRank];
  if (wgmma_streams(own) && wgmma_blocks(rank) <= wgmma_resident_blocks(own, rank)) {
    return "shared memory holds all of lora_B";
  }
  return why_beyond_shared_memory(norm_shared_bytes(own, rank), traits);
}

std::int64_t part_bytes(const Variant& variant, const Sizes& sizes) {
  const long long parts = norm_parts(sizes[kNormColumns], kMaxNormParts).count;
  return parts > 1 ? parts * sizes[kNormRows] * size_in_bytes(compute_type(variant)) : 0;
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
    .has_second_stage = true,
    .specific_architecture = kWgmmaArchitecture,
    .builtin_config = {{kWarps, 1}, {kRowsOfProgram, kBuiltinRows}},
    .default_config = choose_default,
    .config_space = list_configs,
    .why_config_is_invalid = why_invalid,
    .config_expression = norm_config_expression,
    .launch_shape = shape_norm_launch,
    .workspace_bytes = part_bytes,
    .verification_sizes = list_verification_sizes,
    .why_config_does_not_fit = why_not_for,
    .tensor_boxes = list_norm_boxes,
};

}  // namespace dorajit::kernels
