// The shared memory of a program of weight_norm that uses wgmma.
#pragma once

#include "weight_norm_config.h"

namespace dorajit::kernels {

// The layout of a program's shared memory, in bytes from an address that is aligned to 1024.
template <WeightNormConfig kConfig>
struct WgmmaSharedMemory {
  static constexpr int kRowBytes = kWgmmaRowBytes;
  static constexpr int kBlockBytes = wgmma_block_bytes(kConfig);
  static constexpr int kTileBytes = wgmma_tile_bytes(kConfig);
  static constexpr int kStageBytes = wgmma_stage_bytes(kConfig);
  static constexpr int kUnitBytes = kBlockBytes;

  static constexpr int kStages = 0;
  static constexpr int kUnits = kStages + kConfig.stages * kStageBytes;
  static constexpr int kFactor = kUnits + kConfig.weight_units * kUnitBytes;

  static constexpr int barriers(long long rank) {
    return kFactor + wgmma_resident_blocks(kConfig, rank) * kBlockBytes;
  }
  static_assert(1024 + barriers(64) + 8 * wgmma_barriers(kConfig) ==
                wgmma_shared_bytes(kConfig, 64));
};

}  // namespace dorajit::kernels
