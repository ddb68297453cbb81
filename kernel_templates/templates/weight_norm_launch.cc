#include <cstddef>
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

enum Operand : std::size_t { kWeight, kLoraA, kLoraB };

// Threads and dynamic shared memory of a program.
int threads_of(const WeightNormConfig& config) {
  switch (config.instruction) {
    case kWgmma:
    case kWgmmaStream:
      return (config.rows / 64 + 1) * 128;
    case kSplit:
      return 3 * 128;
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
    case kSplit:
      return split_shared_bytes(config, rank);
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

LaunchShape shape_norm_launch(const Variant&, const Config& config,
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
  LaunchShape shape{.run = program_shape(norm_config_from(config), rank), .work = work};
  const auto instruction = static_cast<NormInstruction>(config[kInstruction]);
  if (instruction == kWgmma || instruction == kWgmmaStream) {
    // A program for each processor, which loops over the tasks.
    shape.run.grid_x = std::min<long long>(blocks * parts.count, processors);
  } else {
    // With kSplit, programs form pairs.
    shape.run.grid_x = instruction == kSplit ? divide_up(blocks, 2) * 2 : blocks;
    shape.run.grid_y = parts.count;
  }
  if (parts.count > 1) {
    shape.later.front() = {.grid_x = divide_up(rows, kNormFinishThreads),
                           .threads = kNormFinishThreads};
  }
  return shape;
}

TensorBoxes list_norm_boxes(const Variant& variant, const Config& config,
                            const LaunchArguments& arguments, int) {
  const WeightNormConfig own = norm_config_from(config);
  TensorBoxes boxes{.count = 3};  // kernels with other instructions read none of them
  if (own.instruction != kWgmma && !wgmma_streams(own)) return boxes;
  const auto& [rows, columns, rank] = arguments.sizes;
  boxes.boxes = {box_of(arguments, variant, kWeight, rows, columns, own.rows),
                 box_of(arguments, variant, kLoraA, rank, columns, own.rank_step),
                 box_of(arguments, variant, kLoraB, rows, rank, own.rows)};
  return boxes;
}

}  // namespace dorajit::kernels
