#include <format>

#include "kernel_templates/partial_sums.h"
#include "kernel_templates/templates/compose_low_rank.h"
#include "kernel_templates/templates/matrix_tiles.h"

namespace dorajit::kernels {
namespace {

using enum LowRankInstruction;

constexpr char kInstruction = 'i';
constexpr char kByTurns = 'a';  // alternately
constexpr char kRankStep = 'k';
constexpr char kStages = 's';
constexpr char kPrefetch = 'p';
constexpr char kTiles = 't';
constexpr int kWgmmaThreads = (kLowRankGroups + 1) * 128;

}  // namespace

// Those of mma.sync have no mark for the instruction.
Config as_config(const LowRankConfig& config) {
  if (config.instruction == kWgmma) {
    return {{kInstruction, static_cast<int>(config.instruction)},
            {kRowsOfProgram, config.rows},
            {kColumnsOfProgram, config.columns},
            {kStages, config.stages},
            {kByTurns, config.by_turns ? 1 : 0},
            {kVectorWidth, config.vector_width}};
  }
  return {{kRowsOfProgram, config.rows}, {kColumnsOfProgram, config.columns},
          {kWarps, config.warps},        {kRankStep, config.rank_step},
          {kStages, config.stages},      {kPrefetch, static_cast<int>(config.prefetch)},
          {kTiles, config.tiles},        {kVectorWidth, config.vector_width}};
}

LowRankConfig low_rank_config_from(const Config& config) {
  return {.rows = config[kRowsOfProgram],
          .columns = config[kColumnsOfProgram],
          .warps = config[kWarps],
          .rank_step = config[kRankStep],
          .stages = config[kStages],
          .prefetch = static_cast<ResultPrefetch>(config[kPrefetch]),
          .tiles = config[kTiles],
          .vector_width = config[kVectorWidth],
          .instruction = static_cast<LowRankInstruction>(config[kInstruction]),
          .by_turns = config[kByTurns] != 0};
}

long long low_rank_program_bytes(const Variant& variant, const LowRankConfig& config) {
  if (config.instruction != kWgmma) return low_rank_shared_bytes(config);
  return low_rank_wgmma_shared_bytes(
      config, low_rank_element_bytes(variant.types[kLowRankResult], variant.types[kLowRankOut],
                                     variant.types[kLowRankInner]));
}

std::string low_rank_config_expression(const Config& config) {
  if (config[kColumnsOfProgram] == 0) {
    return std::format("dorajit::kernels::LowRankConfig{{.rows = {}}}", config[kRowsOfProgram]);
  }
  if (config[kInstruction] == static_cast<int>(kWgmma)) {
    return std::format(
        "dorajit::kernels::LowRankConfig{{.rows = {}, .columns = {}, .stages = {}, "
        ".vector_width = {}, .instruction = dorajit::kernels::LowRankInstruction::kWgmma, "
        ".by_turns = {}}}",
        config[kRowsOfProgram], config[kColumnsOfProgram], config[kStages], config[kVectorWidth],
        config[kByTurns] != 0);
  }
  return std::format(
      "dorajit::kernels::LowRankConfig{{{}, {}, {}, {}, {}, "
      "static_cast<dorajit::kernels::ResultPrefetch>({}), {}, {}}}",
      config[kRowsOfProgram], config[kColumnsOfProgram], config[kWarps], config[kRankStep],
      config[kStages], config[kPrefetch], config[kTiles], config[kVectorWidth]);
}

LaunchShape shape_low_rank_launch(const Variant& variant, const Config& config,
                                  const LaunchArguments& arguments, int processors) {
  const long long rows = arguments.sizes[kLowRankRows];
  const long long columns = arguments.sizes[kLowRankColumns];
  const long long rank = low_rank_depth(arguments.scalars[0], arguments.sizes[kLowRankRank]);
  constexpr double kProductsOfAnElement = 8;  // that take as long as composing it
  LaunchShape shape{.run = {},
                    .work = static_cast<double>(rows) * static_cast<double>(columns) *
                            (1 + static_cast<double>(rank) / kProductsOfAnElement)};
  if (config[kColumnsOfProgram] == 0) {  // on a CPU
    shape.run.grid_x = divide_up(columns, kLowRankCpuColumns);
    shape.run.grid_y = divide_up(rows, config[kRowsOfProgram]);
    return shape;
  }
  const LowRankConfig own = low_rank_config_from(config);
  shape.run.shared_bytes = static_cast<int>(low_rank_program_bytes(variant, own));
  if (own.instruction == kWgmma) {
    // A program for each processor, which loops over the tiles.
    shape.run.grid_x = std::min<long long>(
        divide_up(columns, own.columns) * divide_up(rows, own.rows), processors);
    shape.run.threads = kWgmmaThreads;
    return shape;
  }
  shape.run.grid_x = divide_up(columns, own.columns);
  shape.run.grid_y = divide_up(rows, static_cast<long long>(own.rows) * own.tiles);
  shape.run.threads = own.warps * kThreadsPerWarp;
  return shape;
}

TensorBoxes list_low_rank_boxes(const Variant& variant, const Config& config,
                                const LaunchArguments& arguments, int) {
  const LowRankConfig own = low_rank_config_from(config);
  if (own.instruction != kWgmma) return {};
  const auto& [rows, columns, rank] = arguments.sizes;
  const auto of = [&](LowRankOperand operand, long long height, long long width, int box_rows) {
    return box_of(arguments.operands[operand], variant.types[operand], height, width, box_rows);
  };
  const auto of_result = [&](LowRankOperand operand) {
    return variant.has(operand) ? of(operand, rows, columns, low_rank_group_rows(own))
                                : TensorBox{};
  };
  return {.boxes = {of(kLowRankLow, rows, rank, own.rows),
                    of(kLowRankLoraB, columns, rank, own.columns), of_result(kLowRankResult),
                    of_result(kLowRankOut), of_result(kLowRankInner)},
          .count = 5};
}

}  // namespace dorajit::kernels
