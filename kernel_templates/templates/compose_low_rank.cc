#include "kernel_templates/templates/compose_low_rank.h"

#include <algorithm>
#include <format>
#include <initializer_list>

#include "kernel_templates/builtin_compose_low_rank.h"
#include "kernel_templates/partial_sums.h"
#include "kernel_templates/templates/shared_memory.h"

namespace dorajit::kernels {
namespace {

using enum ResultPrefetch;

constexpr int kFirstTensorCores = 80;  // that multiply bf16
constexpr char kRankStep = 'k';
constexpr char kStages = 's';
constexpr char kPrefetch = 'p';
constexpr char kTiles = 't';
constexpr int kWidestStep = 64;
constexpr const char* kNotAllowed = "its template does not allow it";

// The tile of a program, and how it is worked on.
struct Tile {
  int rows;
  int columns;
  int warps;
  ResultPrefetch prefetch;
  int tiles = 1;  // of a program
};

LowRankConfig config_of(const Tile& tile, int rank_step, int stages, int vector_width) {
  return {.rows = tile.rows,
          .columns = tile.columns,
          .warps = tile.warps,
          .rank_step = rank_step,
          .stages = stages,
          .prefetch = tile.prefetch,
          .tiles = tile.tiles,
          .vector_width = vector_width};
}

LowRankConfig low_rank_config_from(const Config& config) {
  return {.rows = config[kRowsOfProgram],
          .columns = config[kColumnsOfProgram],
          .warps = config[kWarps],
          .rank_step = config[kRankStep],
          .stages = config[kStages],
          .prefetch = static_cast<ResultPrefetch>(config[kPrefetch]),
          .tiles = config[kTiles],
          .vector_width = config[kVectorWidth]};
}

// Registers hold the products of so many rows of a warp, and more where they do not hold the result
// meanwhile. Eight elements of it fill four registers, or eight.
int most_warp_rows(const Variant& variant, const LowRankConfig& config) {
  const bool is_packed =
      size_in_bytes(variant.types[kLowRankResult]) == 2 && config.vector_width > 1;
  const bool has_inner = variant.has(kLowRankInner);
  if (config.prefetch == kInRegisters) {
    return is_packed && !(has_inner && config.tiles > 1) ? 32 : 16;
  }
  return is_packed && !has_inner ? 64 : 32;
}

// The tile with its result in cache and, if need be, half its rows, where registers do not hold it.
Tile fitted(Tile tile, const Variant& variant, int vector_width) {
  const auto fits = [&] {
    const LowRankConfig config = config_of(tile, 16, 1, vector_width);
    return low_rank_warp_rows(config) <= most_warp_rows(variant, config);
  };
  if (!fits()) tile.prefetch = kInCache;
  if (!fits()) tile.rows /= 2;
  return tile;
}

Config cpu_config(int rows, int workers) { return {{kWarps, workers}, {kRowsOfProgram, rows}}; }

// The default serves every rank.
Config choose_default(const Variant& variant, const SpaceTraits& traits, int vector_width) {
  if (traits.kind == DeviceKind::kCpu) return cpu_config(kBuiltinLowRankRows, traits.processors);
  const Tile tile = fitted({64, 128, 4, kInRegisters}, variant, vector_width);
  return as_config(config_of(tile, 32, 3, vector_width));
}

void add_once(std::vector<Config>& space, const Config& config) {
  if (!std::ranges::contains(space, config)) space.push_back(config);
}

void add_cpu(std::vector<Config>& space, int processors, SpaceKind kind) {
  for (const int rows : {64, 128, 32, 16}) {
    for (int workers = processors; workers >= 1; workers /= 2) {
      add_once(space, cpu_config(rows, workers));
      if (kind == SpaceKind::kSlim && processors / workers >= 2) break;
    }
  }
}

// Ranks of one step are bound by memory, and their programs are small; others by the products.
void add_slim(std::vector<Config>& space, const Variant& variant, int vector_width) {
  const auto add = [&](const Tile& tile, int rank_step, int stages) {
    add_once(space, as_config(config_of(fitted(tile, variant, vector_width), rank_step, stages,
                                        vector_width)));
  };
  for (const int rank_step : {16, 32, 64}) {
    for (const Tile& tile : {Tile{32, 256, 8, kInRegisters}, Tile{32, 128, 4, kInRegisters},
                             Tile{32, 256, 8, kInRegisters, 4}, Tile{32, 128, 4, kInRegisters, 4},
                             Tile{64, 128, 8, kInRegisters, 4}, Tile{64, 128, 4, kInRegisters, 2},
                             Tile{16, 64, 1, kInRegisters}}) {
      add(tile, rank_step, 1);
    }
  }
  for (const int stages : {2, 3}) {
    for (const Tile& tile : {Tile{128, 128, 8, kInCache}, Tile{128, 256, 8, kInCache},
                             Tile{256, 128, 8, kInCache}, Tile{128, 128, 4, kInCache, 4},
                             Tile{64, 128, 4, kInRegisters}, Tile{16, 64, 1, kInRegisters}}) {
      add(tile, kWidestStep, stages);
    }
  }
}

void add_comprehensive(std::vector<Config>& space, int vector_width) {
  for (const int rows : {16, 32, 64, 128, 256}) {
    for (const int columns : {64, 128, 256}) {
      for (const int warps : {1, 2, 4, 8}) {
        for (const ResultPrefetch prefetch : {kInRegisters, kInCache}) {
          for (const int rank_step : {16, 32, 64}) {
            for (const int stages : {1, 2, 3}) {
              for (const int tiles : {1, 4}) {
                add_once(space, as_config(config_of({rows, columns, warps, prefetch, tiles},
                                                    rank_step, stages, vector_width)));
              }
            }
          }
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
  } else {
    add_slim(space, variant, vector_width);
    if (kind == SpaceKind::kComprehensive) add_comprehensive(space, vector_width);
  }
  // What is wrong with the default is said where it is to be compiled.
  const auto is_invalid = [&](const Config& config) {
    return !compose_low_rank_template.why_config_is_invalid(variant, traits, config).empty();
  };
  space.erase(std::remove_if(space.begin() + 1, space.end(), is_invalid), space.end());
  return space;
}

bool is_among(int value, std::initializer_list<int> values) {
  return std::ranges::contains(values, value);
}

bool has_known_sizes(const Variant& variant, const LowRankConfig& config) {
  if (!is_among(config.rows, {16, 32, 64, 128, 256}) || !is_among(config.columns, {64, 128, 256}) ||
      !is_among(config.warps, {1, 2, 4, 8}) || !is_among(config.rank_step, {16, 32, kWidestStep}) ||
      config.stages < 1 || config.stages > 8 || !is_among(config.tiles, {1, 2, 4, 8}) ||
      !is_among(config.vector_width, {1, 2, 4, 8})) {
    return false;
  }
  const int warp_rows = low_rank_warp_rows(config);
  const int strips = config.columns / kLowRankWarpColumns;
  const bool is_shared_evenly =
      config.warps % strips == 0 && warp_rows * config.warps == config.rows * strips;
  return is_shared_evenly && is_among(warp_rows, {16, 32, 64}) &&
         warp_rows <= most_warp_rows(variant, config);
}

std::string why_invalid(const Variant& variant, const SpaceTraits& traits, const Config& config) {
  if (traits.kind == DeviceKind::kCpu) {
    const bool is_own = config == cpu_config(config[kRowsOfProgram], config[kWarps]) &&
                        is_among(config[kRowsOfProgram], {16, 32, 64, 128}) && config[kWarps] >= 1;
    return is_own ? "" : kNotAllowed;
  }
  const LowRankConfig own = low_rank_config_from(config);
  if (as_config(own) != config || !has_known_sizes(variant, own)) return kNotAllowed;
  if (traits.architecture < kFirstTensorCores) {
    return "compose_low_rank multiplies on tensor cores that came with sm_80; on older GPUs use a "
           "matrix product and compose_residual";
  }
  return why_beyond_shared_memory(low_rank_shared_bytes(own), traits);
}

std::string why_not_for(const Variant&, const SpaceTraits& traits, const Sizes& sizes,
                        const Config& config) {
  if (traits.kind == DeviceKind::kCpu) return {};
  const std::int64_t rank = sizes[kLowRankRank];
  const int step = config[kRankStep];
  if (config[kStages] > 1) {
    // The narrower ring is there for the default, which serves every rank.
    return step == kWidestStep && rank <= step ? "one stage holds all of the rank" : "";
  }
  if (rank > step) return std::format("its only stage holds {} of the rank", step);
  return step > 16 && rank <= step / 2 ? "half of its stage would do" : "";
}

std::string expression(const Config& config) {
  if (config[kColumnsOfProgram] == 0) {
    return std::format("dorajit::kernels::LowRankConfig{{.rows = {}}}", config[kRowsOfProgram]);
  }
  return std::format(
      "dorajit::kernels::LowRankConfig{{{}, {}, {}, {}, {}, "
      "static_cast<dorajit::kernels::ResultPrefetch>({}), {}, {}}}",
      config[kRowsOfProgram], config[kColumnsOfProgram], config[kWarps], config[kRankStep],
      config[kStages], config[kPrefetch], config[kTiles], config[kVectorWidth]);
}

LaunchShape shape_launch(const Variant&, const Config& config, const KernelArguments& arguments) {
  const long long rows = arguments.sizes[kLowRankRows];
  const long long columns = arguments.sizes[kLowRankColumns];
  const long long rank = low_rank_depth(arguments.scalars[0], arguments.sizes[kLowRankRank]);
  constexpr double kProductsOfAnElement = 8;  // that take as long as composing it
  LaunchShape shape{.run = {},
                    .work = static_cast<double>(rows) * static_cast<double>(columns) *
                            (1 + static_cast<double>(rank) / kProductsOfAnElement)};
  const bool is_on_cpu = config[kColumnsOfProgram] == 0;
  shape.run.grid_x = divide_up(columns, is_on_cpu ? kLowRankCpuColumns : config[kColumnsOfProgram]);
  shape.run.grid_y = divide_up(
      rows, static_cast<long long>(config[kRowsOfProgram]) * (is_on_cpu ? 1 : config[kTiles]));
  if (is_on_cpu) return shape;
  shape.run.threads = config[kWarps] * kThreadsPerWarp;
  shape.run.shared_bytes = static_cast<int>(low_rank_shared_bytes(low_rank_config_from(config)));
  return shape;
}

std::int64_t no_workspace(const Variant&, const Sizes&) { return 0; }

// A whole program of every config in the spaces and an end within the next, all of the rank; few
// enough columns for the host.
std::vector<Sizes> list_verification_sizes(const Variant&, const Sizes& problem) {
  constexpr std::int64_t kMostColumns = 512;
  constexpr std::int64_t kMostProducts = 1 << 28;
  constexpr std::int64_t kRows = 515;
  const std::int64_t rank = problem[kLowRankRank];
  const std::int64_t columns =
      std::min(problem[kLowRankColumns] <= kMostColumns
                   ? problem[kLowRankColumns]
                   : kMostColumns + problem[kLowRankColumns] % kMostColumns,
               kMostProducts / (kRows * (rank + 1)));
  const std::int64_t rows = kRows;
  return {{rows, columns, rank},
          {rows, columns, rank},
          {std::max<std::int64_t>(1, rows / 2), std::max<std::int64_t>(1, columns - 3), rank}};
}

}  // namespace

Config as_config(const LowRankConfig& config) {
  return {{kRowsOfProgram, config.rows}, {kColumnsOfProgram, config.columns},
          {kWarps, config.warps},        {kRankStep, config.rank_step},
          {kStages, config.stages},      {kPrefetch, static_cast<int>(config.prefetch)},
          {kTiles, config.tiles},        {kVectorWidth, config.vector_width}};
}

extern constinit const Template compose_low_rank_template = {
    .name = "compose_low_rank",
    .cuda_source = "cuda/compose_low_rank.cuh",
    .cpu_source = "cpu/compose_low_rank.h",
    .entry_macro = "DORAJIT_COMPOSE_LOW_RANK_KERNEL",
    .builtin_config = {{kWarps, 1}, {kRowsOfProgram, kBuiltinLowRankRows}},
    .default_config = choose_default,
    .config_space = list_configs,
    .why_config_is_invalid = why_invalid,
    .config_expression = expression,
    .launch_shape = shape_launch,
    .workspace_bytes = no_workspace,
    .verification_sizes = list_verification_sizes,
    .why_config_does_not_fit = why_not_for,
};

}  // namespace dorajit::kernels
