#include "kernel_templates/templates/compose_low_rank.h"

#include <algorithm>
#include <format>
#include <initializer_list>

#include "kernel_templates/builtin_compose_low_rank.h"
#include "kernel_templates/templates/matrix_tiles.h"

namespace dorajit::kernels {
namespace {

using enum LowRankInstruction;
using enum ResultPrefetch;

constexpr int kFirstTensorCores = 80;  // that multiply bf16
constexpr int kWgmmaArchitecture = 90;
constexpr int kWidestStep = 64;
constexpr int kMaxStages = 8;
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

// Whether the copy engine can move all matrices of problems of the widest vectors.
bool can_use_wgmma(const Variant& variant, const SpaceTraits& traits, int vector_width) {
  return traits.kind == DeviceKind::kCuda && traits.architecture == kWgmmaArchitecture &&
         vector_width == widest_vector(variant, traits.kind);
}

// Columns of the narrowest matrix that make 16 bytes: the copy engine stores no less.
int columns_of_unit(const Variant& variant) {
  const auto is_narrow = [&](LowRankOperand operand) {
    return variant.has(operand) && size_in_bytes(variant.types[operand]) == 2;
  };
  return is_narrow(kLowRankResult) || is_narrow(kLowRankOut) || is_narrow(kLowRankInner) ? 8 : 4;
}

// Whether wgmma serves sizes of problems that can use it. Then mma.sync does not.
bool is_for_wgmma(const Variant& variant, const Sizes& sizes) {
  return low_rank_is_long(sizes[kLowRankRank]) &&
         sizes[kLowRankColumns] % columns_of_unit(variant) == 0;
}

LowRankConfig wgmma(const Variant& variant, int rows, int columns, bool by_turns, int stages) {
  return {.rows = rows,
          .columns = columns,
          .stages = stages,
          .vector_width = widest_vector(variant, DeviceKind::kCuda),
          .instruction = kWgmma,
          .by_turns = by_turns};
}

// With the most stages that shared memory has room for.
LowRankConfig deepest_wgmma(const Variant& variant, const SpaceTraits& traits, int rows,
                            int columns, bool by_turns) {
  LowRankConfig config = wgmma(variant, rows, columns, by_turns, kMaxStages);
  while (config.stages > 1 &&
         !why_beyond_shared_memory(low_rank_program_bytes(variant, config), traits).empty()) {
    --config.stages;
  }
  return config;
}

Config cpu_config(int rows, int workers) { return {{kWarps, workers}, {kRowsOfProgram, rows}}; }

// By mma.sync, for every rank.
Config choose_default(const Variant& variant, const SpaceTraits& traits, int vector_width) {
  if (traits.kind == DeviceKind::kCpu) return cpu_config(kBuiltinLowRankRows, traits.processors);
  const Tile tile = fitted({64, 128, 4, kInRegisters}, variant, vector_width);
  return as_config(config_of(tile, 32, 3, vector_width));
}

// Groups by turns keep a tile of the result each; where it is wide, they leave few stages.
Config choose_for_sizes(const Variant& variant, const SpaceTraits& traits, int vector_width,
                        const Sizes& sizes) {
  if (!can_use_wgmma(variant, traits, vector_width) || !is_for_wgmma(variant, sizes)) {
    return choose_default(variant, traits, vector_width);
  }
  constexpr int kEnoughStages = 4;
  const LowRankConfig by_turns = deepest_wgmma(variant, traits, 128, 128, true);
  return as_config(by_turns.stages >= kEnoughStages
                       ? by_turns
                       : deepest_wgmma(variant, traits, 128, 128, false));
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

void add_wgmma(std::vector<Config>& space, const Variant& variant, const SpaceTraits& traits,
               SpaceKind kind) {
  for (const bool by_turns : {true, false}) {
    for (const int rows : {128, 64}) {
      for (const int columns : {128, 256}) {
        const bool is_slim = columns == 128 ? rows == 128 || by_turns : rows == 128 && !by_turns;
        if (kind == SpaceKind::kSlim && !is_slim) continue;
        const LowRankConfig deepest = deepest_wgmma(variant, traits, rows, columns, by_turns);
        add_once(space, as_config(deepest));
        if (kind == SpaceKind::kSlim) continue;
        for (int stages = 2; stages < deepest.stages; ++stages) {
          add_once(space, as_config(wgmma(variant, rows, columns, by_turns, stages)));
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
    if (can_use_wgmma(variant, traits, vector_width)) add_wgmma(space, variant, traits, kind);
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

bool has_known_wgmma_sizes(const LowRankConfig& config) {
  constexpr int kMaxProducts = 64 * 256;  // of a group, in registers
  const int group_rows = low_rank_group_rows(config);
  return is_among(config.rows, {64, 128}) && is_among(config.columns, {128, 256}) &&
         is_among(group_rows, {64, 128}) && group_rows * config.columns <= kMaxProducts &&
         config.stages >= 2 && config.stages <= kMaxStages;
}

bool has_known_sizes(const Variant& variant, const LowRankConfig& config) {
  if (config.instruction == kWgmma) return has_known_wgmma_sizes(config);
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
  if (own.instruction == kWgmma && !can_use_wgmma(variant, traits, own.vector_width)) {
    return "it uses wgmma, which needs sm_90 and data that is aligned to 16 bytes";
  }
  return why_beyond_shared_memory(low_rank_program_bytes(variant, own), traits);
}

std::string why_not_for(const Variant& variant, const SpaceTraits& traits, const Sizes& sizes,
                        const Config& config) {
  if (traits.kind == DeviceKind::kCpu) return {};
  const std::int64_t rank = sizes[kLowRankRank];
  const LowRankConfig own = low_rank_config_from(config);
  const bool is_long = is_for_wgmma(variant, sizes);
  if (own.instruction == kWgmma) {
    return is_long ? "" : "mma.sync serves those sizes";
  }
  if (is_long && can_use_wgmma(variant, traits, own.vector_width)) {
    return "wgmma serves those sizes";
  }
  const int step = own.rank_step;
  if (own.stages > 1) {
    // The narrower ring is there for the default, which serves every rank.
    return step == kWidestStep && rank <= step ? "one stage holds all of the rank" : "";
  }
  if (rank > step) return std::format("its only stage holds {} of the rank", step);
  return step > 16 && rank <= step / 2 ? "half of its stage would do" : "";
}

std::int64_t no_workspace(const Variant&, DeviceKind, const Sizes&) { return 0; }

// A whole program of every config in the spaces and an end within the next, all of the rank; few
// enough columns for the host. Those of wgmma end with a unit of the copy engine, and one has so
// many tiles that programs have several.
std::vector<Sizes> list_verification_sizes(const Variant& variant, const Sizes& problem) {
  constexpr std::int64_t kMaxColumns = 512;
  constexpr std::int64_t kMaxProducts = 1 << 28;
  constexpr std::int64_t kRows = 515;
  const std::int64_t rank = problem[kLowRankRank];
  const std::int64_t unit = is_for_wgmma(variant, problem) ? columns_of_unit(variant) : 1;
  const std::int64_t columns = std::min(problem[kLowRankColumns] <= kMaxColumns
                                            ? problem[kLowRankColumns]
                                            : kMaxColumns + problem[kLowRankColumns] % kMaxColumns,
                                        kMaxProducts / (kRows * (rank + 1)) / unit * unit);
  const Sizes ragged = {kRows / 2, std::max<std::int64_t>(1, columns - (unit > 1 ? unit : 3)),
                        rank};
  if (unit == 1) return {{kRows, columns, rank}, {kRows, columns, rank}, ragged};
  constexpr std::int64_t kTwoSteps = 72;
  const Sizes several_tiles = {1156, 2056, std::min(rank, kTwoSteps)};
  return {{kRows, columns, rank}, several_tiles, ragged};
}

}  // namespace

extern constinit const Template compose_low_rank_template = {
    .name = "compose_low_rank",
    .cuda_source = "cuda/compose_low_rank.cuh",
    .cpu_source = "cpu/compose_low_rank.h",
    .entry_macro = "DORAJIT_COMPOSE_LOW_RANK_KERNEL",
    .specific_architecture = kWgmmaArchitecture,
    .builtin_config = {{kWarps, 1}, {kRowsOfProgram, kBuiltinLowRankRows}},
    .default_config = choose_default,
    .default_for_sizes = choose_for_sizes,
    .config_space = list_configs,
    .why_config_is_invalid = why_invalid,
    .config_expression = low_rank_config_expression,
    .launch_shape = shape_low_rank_launch,
    .workspace_bytes = no_workspace,
    .verification_sizes = list_verification_sizes,
    .why_config_does_not_fit = why_not_for,
    .tensor_boxes = list_low_rank_boxes,
};

}  // namespace dorajit::kernels
