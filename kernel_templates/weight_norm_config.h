// The tunables of the weight_norm kernels, shared by host and device.
//
// Compiled by NVRTC and by any C++20 host compiler, so it includes headers of neither.
#pragma once

#include "math/weight_norm.h"

namespace dorajit::kernels {

// The instruction that multiplies the tiles of B and A.
enum class NormInstruction : int {
  kScalar = 0,       // multiply-adds in the compute type
  kMma = 1,          // mma.sync, sm_80 and newer
  kWgmma = 2,        // wgmma on shared memory that TMA fills, sm_90a
  kSplit = 3,        // wgmma on f32 factors, each split into a pair of float16, sm_90a
  kWgmmaStream = 4,  // kWgmma for ranks whose rows of B exceed shared memory
};

// A config never changes a bit of the output, except by its instruction, which follows from the
// element types and the architecture.
struct WeightNormConfig {
  NormInstruction instruction = NormInstruction::kScalar;
  int rows = 64;         // per program
  int columns = 64;      // per tile
  int rank_step = 16;    // rank elements per stage
  int stages = 2;        // stages of tiles of A in flight
  int weight_units = 0;  // kWgmma, kWgmmaStream: units of W in flight, each 128 bytes by `rows`
  int max_parts = 1;     // maximum parts of a row
  int vector_width = 1;  // elements of the widest access to A, B and W

  friend constexpr bool operator==(const WeightNormConfig&, const WeightNormConfig&) = default;
};

// Shared memory of a program that uses wgmma: its rows of B, the rings of tiles of A and of units
// of W, and their barriers (cuda/weight_norm/wgmma.cuh).
inline constexpr int kWgmmaRowBytes = 128;

constexpr int wgmma_blocks(long long rank) { return static_cast<int>((rank + 63) / 64); }

constexpr int wgmma_barriers(const WeightNormConfig& config) {
  return 2 + 2 * (config.stages + config.weight_units);
}

constexpr bool wgmma_streams(const WeightNormConfig& config) {
  return config.instruction == NormInstruction::kWgmmaStream;
}

// 128 bytes of each row of a program: a block of B (64 of the rank), or a unit of W.
constexpr int wgmma_block_bytes(const WeightNormConfig& config) {
  return config.rows * kWgmmaRowBytes;
}
constexpr int wgmma_tile_bytes(const WeightNormConfig& config) {
  return config.rank_step * config.columns * 2;
}
// A tile of A and, with kWgmmaStream, a block of B that is not resident.
constexpr int wgmma_stage_bytes(const WeightNormConfig& config) {
  return wgmma_tile_bytes(config) + (wgmma_streams(config) ? wgmma_block_bytes(config) : 0);
}

// The sum of the parts plus 1024 bytes, so that the first part can be aligned.
constexpr long long wgmma_shared_bytes_without_factor(const WeightNormConfig& config) {
  return 1024 + static_cast<long long>(config.stages) * wgmma_stage_bytes(config) +
         static_cast<long long>(config.weight_units) * wgmma_block_bytes(config) +
         8LL * wgmma_barriers(config);
}

// Blocks of B that are resident in shared memory: all, or as many as fit.
inline constexpr long long kWgmmaSharedLimit = 232448;  // per program, on sm_90

constexpr int wgmma_resident_blocks(const WeightNormConfig& config, long long rank) {
  if (!wgmma_streams(config)) return wgmma_blocks(rank);
  const long long left = kWgmmaSharedLimit - wgmma_shared_bytes_without_factor(config);
  return left < 0 ? 0 : static_cast<int>(left / wgmma_block_bytes(config));
}

constexpr long long wgmma_shared_bytes(const WeightNormConfig& config, long long rank) {
  return wgmma_shared_bytes_without_factor(config) +
         static_cast<long long>(wgmma_resident_blocks(config, rank)) * wgmma_block_bytes(config);
}

// Shared memory of a program that splits its factors (cuda/weight_norm/split.cuh): a ring of tiles
// of A, and its rows of B, which are resident or, for high ranks, in the ring as well.
inline constexpr int kSplitRows = 64;
inline constexpr int kSplitColumns = 128;
inline constexpr int kSplitStages = 4;
inline constexpr int kSplitResidentRank = 384;
inline constexpr int kSplitTileBytes = 2 * kNormRankBlock * kSplitColumns * 2;
inline constexpr int kSplitFactorBytes = 2 * kSplitRows * kNormRankBlock * 2;  // per 64 of the rank

constexpr bool split_streams(long long rank) { return rank > kSplitResidentRank; }

constexpr int split_stage_bytes(long long rank) {
  return kSplitTileBytes + (split_streams(rank) ? kSplitFactorBytes : 0);
}
constexpr int split_factor_blocks(long long rank) {
  return split_streams(rank) ? 0 : static_cast<int>((rank + kNormRankBlock - 1) / kNormRankBlock);
}
// Exponents of the rows of B and of the tiles of A, data exchanged by warps, and barriers.
constexpr int split_table_bytes(const WeightNormConfig& config, long long rank) {
  const int exponents = split_streams(rank) ? config.stages : split_factor_blocks(rank);
  return 4 * (kSplitRows * exponents + 4 * config.stages + 32) + 8 * (2 * config.stages + 1);
}

constexpr long long split_shared_bytes(const WeightNormConfig& config, long long rank) {
  return 1024 + static_cast<long long>(config.stages) * split_stage_bytes(rank) +
         static_cast<long long>(split_factor_blocks(rank)) * kSplitFactorBytes +
         split_table_bytes(config, rank);
}

// Shared memory with mma.sync, for any rank: a ring of tiles of A and B with padded rows.
inline constexpr int kMmaPad = 8;  // elements

constexpr long long mma_shared_bytes(const WeightNormConfig& config) {
  return 2LL * config.stages *
         (config.rank_step * (config.columns + kMmaPad) +
          config.rows * (config.rank_step + kMmaPad));
}

}  // namespace dorajit::kernels
