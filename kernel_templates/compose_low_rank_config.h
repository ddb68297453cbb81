// The tunables of the compose_low_rank kernels, shared by host and device.
//
// Read by NVRTC and by any C++20 host compiler, so nothing of theirs may be included here.
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

// What multiplies the tiles of the factors.
enum class LowRankInstruction : int {
  kMma = 0,    // mma.sync, sm_80 and newer
  kWgmma = 1,  // wgmma from shared memory that TMA fills, sm_90a
};

// Up to this rank mma.sync serves everywhere: wgmma gains less on large matrices than it loses on
// smaller ones (docs/performance.md).
inline constexpr long long kLowRankMmaRank = 32;

constexpr bool low_rank_is_long(long long rank) { return rank > kLowRankMmaRank; }

// Where the tile of the result waits for its products.
enum class ResultPrefetch : int { kInCache = 0, kInRegisters = 1 };

// A config never changes a bit of the output. The instruction follows from sizes, alignment and
// architecture. By wgmma a program goes from tile to tile, its warps are three groups of four, and
// a stage holds 64 of the rank.
struct LowRankConfig {
  int rows = 64;      // of a tile
  int columns = 128;  // of a tile
  int warps = 4;
  int rank_step = 32;  // of the rank, that one stage holds
  int stages = 3;      // of tiles of the factors in flight; 1: the rank has one step
  ResultPrefetch prefetch = ResultPrefetch::kInRegisters;
  int tiles = 1;         // of a program, one below the other
  int vector_width = 1;  // elements of the widest access to the result and the outputs
  LowRankInstruction instruction = LowRankInstruction::kMma;
  bool by_turns = false;  // wgmma: each group that multiplies has tiles of its own, else both share

  friend constexpr bool operator==(const LowRankConfig&, const LowRankConfig&) = default;
};

// How much of the rank the product is taken over: nothing where the scale is 0, as it is rounded.
constexpr long long low_rank_depth(double scale, long long rank) {
  return static_cast<float>(scale) == 0.0F ? 0 : rank;
}

// Of a program on the CPU, whose config has nothing but its rows.
inline constexpr int kLowRankCpuColumns = 256;

// The columns of a program are shared among warps in strips of so many.
inline constexpr int kLowRankWarpColumns = 64;

constexpr int low_rank_warp_rows(const LowRankConfig& config) {
  return config.rows * (config.columns / kLowRankWarpColumns) / config.warps;
}

// How many programs a multiprocessor is to hold at once, of operands that are read and written in
// 16-bit vectors: registers are rationed by it. What a ration is not enough for would spill.
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

// Rows of tiles are padded by 16 bytes, so that the eight rows of a fragment lie in different
// banks.
inline constexpr int kLowRankPad = 8;  // elements

constexpr long long low_rank_shared_bytes(const LowRankConfig& config) {
  return 2LL * config.stages * (config.rows + config.columns) * (config.rank_step + kLowRankPad);
}

// The same by wgmma (cuda/low_rank_tiles.cuh).
inline constexpr int kLowRankGroups = 2;      // of four warps, that multiply and compose
inline constexpr int kLowRankRowBytes = 128;  // of every box that TMA moves
inline constexpr int kLowRankStep = 64;       // of the rank, that one stage holds
inline constexpr int kLowRankStrip = 64;      // columns of result and outputs that move at once

constexpr int low_rank_group_rows(const LowRankConfig& config) {
  return config.by_turns ? config.rows : config.rows / kLowRankGroups;
}

// Shared memory holds a tile of the result for each group. The output is written over it if its
// elements have the same size; other outputs have buffers of their own.
constexpr int low_rank_element_bytes(ElementType result, ElementType out, ElementType inner) {
  const int own_out = size_in_bytes(out) == size_in_bytes(result) ? 0 : size_in_bytes(out);
  return size_in_bytes(result) + own_out + size_in_bytes(inner);
}

constexpr int low_rank_stage_bytes(const LowRankConfig& config) {
  return (config.rows + config.columns) * kLowRankRowBytes;
}

// Two for each stage, two for each strip of a group, and one that gives a group its turn.
constexpr int low_rank_barriers(const LowRankConfig& config) {
  return 2 * config.stages + kLowRankGroups * (2 * (config.columns / kLowRankStrip) + 1);
}

// Stages, tiles of the result and the outputs, gain and bias of their columns in fp32, barriers.
constexpr long long low_rank_wgmma_shared_bytes(const LowRankConfig& config, int element_bytes) {
  const long long group_bytes = static_cast<long long>(config.columns) *
                                (low_rank_group_rows(config) * element_bytes + 2 * 4);
  return static_cast<long long>(config.stages) * low_rank_stage_bytes(config) +
         kLowRankGroups * group_bytes + 8LL * low_rank_barriers(config);
}

}  // namespace dorajit::kernels
