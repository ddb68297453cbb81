// The tunables of the compose_low_rank kernels, shared by host and device.
//
// Compiled by NVRTC and by any C++20 host compiler, so it includes headers of neither.
#pragma once

#include "element_type.h"

namespace dorajit::kernels {

// The dimensions of compose_low_rank, as indices into its sizes.
inline constexpr int kLowRankRows = 0;
inline constexpr int kLowRankColumns = 1;
inline constexpr int kLowRankRank = 2;

// The operands, in the order of KernelArguments.
enum LowRankOperand : int {
  kLowRankLow,
  kLowRankLoraB,
  kLowRankResult,
  kLowRankGain,
  kLowRankBias,
  kLowRankOut,
  kLowRankInner,
  kLowRankOperands,
};

// The instruction that multiplies the tiles of the factors.
enum class LowRankInstruction : int {
  kMma = 0,    // mma.sync, sm_80 and newer
  kWgmma = 1,  // wgmma on shared memory that TMA fills, sm_90a
};

// Maximum rank for which mma.sync is always used: at such ranks wgmma gains less on large matrices
// than it loses on smaller ones (docs/performance.md).
inline constexpr long long kLowRankMmaRank = 32;

constexpr bool low_rank_is_long(long long rank) { return rank > kLowRankMmaRank; }

// Where the tile of the result is kept until its products are complete.
enum class ResultPrefetch : int { kInCache = 0, kInRegisters = 1 };

// A config never changes a bit of the output. The instruction follows from sizes, alignment and
// architecture. With wgmma, a program loops over tiles, its warps form three warpgroups, and a
// stage holds 64 of the rank.
struct LowRankConfig {
  int rows = 64;      // per tile
  int columns = 128;  // per tile
  int warps = 4;
  int rank_step = 32;  // rank elements per stage
  int stages = 3;      // stages of factor tiles in flight; 1: the rank has one step
  ResultPrefetch prefetch = ResultPrefetch::kInRegisters;
  int tiles = 1;         // per program, one below the other
  int vector_width = 1;  // elements of the widest access to the result and the outputs
  LowRankInstruction instruction = LowRankInstruction::kMma;
  bool by_turns = false;  // wgmma: the warpgroups have their own tiles; false: they share tiles

  friend constexpr bool operator==(const LowRankConfig&, const LowRankConfig&) = default;
};

// The number of terms in each product's sum: 0 if the scale, rounded to fp32, is 0.
constexpr long long low_rank_depth(double scale, long long rank) {
  return static_cast<float>(scale) == 0.0F ? 0 : rank;
}

// Columns of a program on the CPU; its config sets only `rows`.
inline constexpr int kLowRankCpuColumns = 256;

// Warps share the columns of a program in strips of this width.
inline constexpr int kLowRankWarpColumns = 64;

constexpr int low_rank_warp_rows(const LowRankConfig& config) {
  return config.rows * (config.columns / kLowRankWarpColumns) / config.warps;
}

// Target number of resident programs per multiprocessor, for vectors of 16-bit elements. It sets
// the register budget of a thread; the code of a config would spill if it exceeded its budget.
constexpr int low_rank_programs(const LowRankConfig& config, bool has_inner) {
  if (config.warps < 4) return 1;
  const int warp_rows = low_rank_warp_rows(config);
  const bool keeps_result = config.prefetch == ResultPrefetch::kInRegisters;
  int registers = 255;
  if (warp_rows == 16) registers = config.tiles > 1 || has_inner ? 128 : 96;
  if (warp_rows == 16 && config.tiles > 1 && has_inner) registers = 168;
  if (warp_rows == 32 && !has_inner) {
    registers = !keeps_result && config.tiles == 1 ? 128
                : keeps_result && config.tiles > 1 ? 255
                                                   : 168;
  }
  const int programs = 65536 / (registers * 32 * config.warps);
  return programs > 1 ? programs : 1;
}

// Padding of the rows of tiles: 16 bytes, so that the eight rows of a fragment lie in different
// banks.
inline constexpr int kLowRankPad = 8;  // elements

constexpr long long low_rank_shared_bytes(const LowRankConfig& config) {
  return 2LL * config.stages * (config.rows + config.columns) * (config.rank_step + kLowRankPad);
}

// The layout of shared memory with wgmma (cuda/compose_low_rank/tiles.cuh).
inline constexpr int kLowRankGroups = 2;      // warpgroups that multiply and compose
inline constexpr int kLowRankRowBytes = 128;  // per row of every TMA box
inline constexpr int kLowRankStep = 64;       // rank elements per stage
inline constexpr int kLowRankStrip = 64;      // columns of result and outputs per transfer

constexpr int low_rank_group_rows(const LowRankConfig& config) {
  return config.by_turns ? config.rows : config.rows / kLowRankGroups;
}

// Shared memory holds a tile of the result for each group. The output overwrites it if its elements
// have the same size; other outputs have their own buffers.
constexpr int low_rank_element_bytes(ElementType result, ElementType out, ElementType inner) {
  const int own_out = size_in_bytes(out) == size_in_bytes(result) ? 0 : size_in_bytes(out);
  return size_in_bytes(result) + own_out + size_in_bytes(inner);
}

constexpr int low_rank_stage_bytes(const LowRankConfig& config) {
  return (config.rows + config.columns) * kLowRankRowBytes;
}

// Two for each stage, two for each strip of a group, and one per group to signal its turn.
constexpr int low_rank_barriers(const LowRankConfig& config) {
  return 2 * config.stages + kLowRankGroups * (2 * (config.columns / kLowRankStrip) + 1);
}

// Stages, tiles of the result and the outputs, fp32 gain and bias of the columns, barriers.
constexpr long long low_rank_wgmma_shared_bytes(const LowRankConfig& config, int element_bytes) {
  const long long group_bytes = static_cast<long long>(config.columns) *
                                (low_rank_group_rows(config) * element_bytes + 2 * 4);
  return static_cast<long long>(config.stages) * low_rank_stage_bytes(config) +
         kLowRankGroups * group_bytes + 8LL * low_rank_barriers(config);
}

}  // namespace dorajit::kernels
