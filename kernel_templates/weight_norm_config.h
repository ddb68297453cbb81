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
  kWgmmaStream = 4,  // kWgmma for ranks whose rows of B exceed shared memory
};

// Whether tensor cores multiply these factors as pairs of float16.
constexpr bool has_factor_pairs(ElementType a, ElementType b) {
  return a != b || size_in_bytes(a) != 2;
}

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

// The workspace of a norm whose factors are split (cuda/weight_norm/factor_pairs.cuh). After the
// sums of parts: the exponents of the rows of A, the scales of the rows of B, and both factors in
// float16, with three times the rank.
inline constexpr int kFactorPairThreads = 256;
inline constexpr int kFactorPairColumns = 1024;  // of A, per program
inline constexpr int kFactorTerms = 3;

// Threads that split a row of B.
constexpr int factor_pair_lanes(long long rank) {
  int lanes = 4;
  while (lanes < 32 && lanes < rank / 2) lanes *= 2;
  return lanes;
}

struct FactorPairLayout {
  static constexpr long long kAlignment = 128;  // in bytes, of each part

  long long a_stride;  // from row to row, in elements
  long long b_stride;
  long long exponents;  // offsets in bytes
  long long scales;
  long long a;
  long long b;
  long long bytes;  // with room to align the first part
};

constexpr long long aligned_up(long long bytes) {
  return (bytes + FactorPairLayout::kAlignment - 1) & ~(FactorPairLayout::kAlignment - 1);
}

constexpr FactorPairLayout factor_pair_layout(long long rows, long long columns, long long rank) {
  FactorPairLayout layout{};
  layout.a_stride = (columns + 7) & ~7LL;
  layout.b_stride = (kFactorTerms * rank + 7) & ~7LL;
  layout.exponents = aligned_up(kMaxNormParts * rows * 4);
  layout.scales = layout.exponents + aligned_up(rank * 4);
  layout.a = layout.scales + aligned_up(rows * 4);
  layout.b = layout.a + aligned_up(kFactorTerms * rank * layout.a_stride * 2);
  layout.bytes = layout.b + rows * layout.b_stride * 2 + FactorPairLayout::kAlignment;
  return layout;
}

// Shared memory with mma.sync, for any rank: a ring of tiles of A and B with padded rows.
inline constexpr int kMmaPad = 8;  // elements

constexpr long long mma_shared_bytes(const WeightNormConfig& config) {
  return 2LL * config.stages *
         (config.rank_step * (config.columns + kMmaPad) +
          config.rows * (config.rank_step + kMmaPad));
}

}  // namespace dorajit::kernels
