#include <bit>
#include <cstddef>
#include <cstdint>
#include <format>

#include "kernel_templates/partial_sums.h"
#include "kernel_templates/templates/matrix_tiles.h"
#include "kernel_templates/templates/weight_norm.h"

namespace dorajit::kernels {
namespace {

using enum NormInstruction;

constexpr char kInstruction = 'i';
constexpr char kRankStep = 'k';
constexpr char kStages = 's';
constexpr char kWeightUnits = 'u';
constexpr char kMaxParts = 'p';

// Threads and dynamic shared memory of a program.
int threads_of(const WeightNormConfig& config) {
  switch (config.instruction) {
    case kWgmma:
    case kWgmmaStream:
      return (config.rows / 64 + 1) * 128;
    case kMma:
      return config.rows;
    case kScalar:
      break;
  }
  return config.rows / 4 * kNormChains;
}

StageShape program_shape(const WeightNormConfig& config, long long rank) {
  return {.threads = threads_of(config),
          .shared_bytes = static_cast<int>(norm_shared_bytes(config, rank))};
}

}  // namespace

Config as_config(const WeightNormConfig& config) {
  return {{kInstruction, static_cast<int>(config.instruction)},
          {kRowsOfProgram, config.rows},
          {kColumnsOfProgram, config.columns},
          {kRankStep, config.rank_step},
          {kStages, config.stages},
          {kWeightUnits, config.weight_units},
          {kMaxParts, config.max_parts},
          {kVectorWidth, config.vector_width}};
}

WeightNormConfig norm_config_from(const Config& config) {
  return {.instruction = static_cast<NormInstruction>(config[kInstruction]),
          .rows = config[kRowsOfProgram],
          .columns = config[kColumnsOfProgram],
          .rank_step = config[kRankStep],
          .stages = config[kStages],
          .weight_units = config[kWeightUnits],
          .max_parts = config[kMaxParts],
          .vector_width = config[kVectorWidth]};
}

long long norm_shared_bytes(const WeightNormConfig& config, long long rank) {
  switch (config.instruction) {
    case kMma:
      return mma_shared_bytes(config);
    case kWgmma:
    case kWgmmaStream:
      return wgmma_shared_bytes(config, rank);
    case kScalar:
      break;
  }
  return 0;  // it has only static memory
}

std::string norm_config_expression(const Config& config) {
  if (config[kWarps] > 0) {
    return std::format("dorajit::kernels::WeightNormConfig{{.rows = {}}}", config[kRowsOfProgram]);
  }
  return std::format(
      "dorajit::kernels::WeightNormConfig{{static_cast<dorajit::kernels::NormInstruction>({}), {}, "
      "{}, {}, {}, {}, {}, {}}}",
      config[kInstruction], config[kRowsOfProgram], config[kColumnsOfProgram], config[kRankStep],
      config[kStages], config[kWeightUnits], config[kMaxParts], config[kVectorWidth]);
}

LaunchShape shape_norm_launch(const Variant& variant, const Config& config,
                              const LaunchArguments& arguments, int processors) {
  const long long rows = arguments.sizes[kNormRows];
  const long long columns = arguments.sizes[kNormColumns];
  const long long rank = arguments.scalars[0] == 0 ? 0 : arguments.sizes[kNormRank];
  // Products that take as long as loading their element of W.
  constexpr double kProductsOfAnElement = 8;
  const double work = static_cast<double>(rows) * static_cast<double>(columns) *
                      (1 + static_cast<double>(rank) / kProductsOfAnElement);
  const long long blocks = divide_up(rows, config[kRowsOfProgram]);
  if (config[kWarps] > 0) return {.run = {.grid_x = blocks}, .work = work};
  const NormParts parts = norm_parts(columns, config[kMaxParts]);
  const WeightNormConfig own = norm_config_from(config);
  StageShape main = program_shape(own, factor_rank(variant, rank));
  if (own.instruction >= kWgmma) {
    // A program for each processor, which loops over the tasks.
    main.grid_x = std::min<long long>(blocks * parts.count, processors);
  } else {
    main.grid_x = blocks;
    main.grid_y = parts.count;
  }
  StageShape finish;
  if (parts.count > 1) {
    finish = {.grid_x = divide_up(rows, kNormFinishThreads), .threads = kNormFinishThreads};
  }
  if (!has_factor_pairs(variant.types[kNormLoraA], variant.types[kNormLoraB])) {
    return {.run = main, .later = {finish}, .work = work};
  }
  StageShape exponents;
  StageShape split;
  if (rank > 0 && rows > 0 && own.instruction != kScalar) {
    exponents = {.grid_x = rank, .threads = kFactorPairThreads};
    split = {.grid_x = rank * divide_up(columns, kFactorPairColumns) +
                       divide_up(rows * factor_pair_lanes(rank), kFactorPairThreads),
             .threads = kFactorPairThreads};
  }
  return {.run = exponents, .later = {split, main, finish}, .work = work};
}

// Of a factor that is split, in the workspace.
OperandArgument split_factor(const LaunchArguments& arguments, long long offset,
                             long long row_stride) {
  const auto base = std::bit_cast<std::intptr_t>(arguments.workspace);
  return {.data = std::bit_cast<void*>(aligned_up(base) + offset), .row_stride = row_stride};
}

TensorBoxes list_norm_boxes(const Variant& variant, const Config& config,
                            const LaunchArguments& arguments, int) {
  const WeightNormConfig own = norm_config_from(config);
  TensorBoxes boxes{.count = 3};  // kernels with other instructions read none of them
  if (own.instruction < kWgmma) return boxes;
  const auto& [rows, columns, rank] = arguments.sizes;
  OperandArgument a = arguments.operands[kNormLoraA];
  OperandArgument b = arguments.operands[kNormLoraB];
  ElementType type = variant.types[kNormLoraA];
  if (has_factor_pairs(type, variant.types[kNormLoraB])) {
    const FactorPairLayout layout = factor_pair_layout(rows, columns, rank);
    a = split_factor(arguments, layout.a, layout.a_stride);
    b = split_factor(arguments, layout.b, layout.b_stride);
    type = ElementType::kFloat16;
  }
  const long long all = factor_rank(variant, rank);
  boxes.boxes = {
      box_of(arguments.operands[kNormWeight], variant.types[kNormWeight], rows, columns, own.rows),
      box_of(a, type, all, columns, own.rank_step), box_of(b, type, rows, all, own.rows)};
  return boxes;
}

std::int64_t factor_rank(const Variant& variant, std::int64_t rank) {
  const bool is_split = has_factor_pairs(variant.types[kNormLoraA], variant.types[kNormLoraB]);
  return is_split ? kFactorTerms * rank : rank;
}

}  // namespace dorajit::kernels
