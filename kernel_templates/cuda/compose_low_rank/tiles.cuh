// The division of work among programs and groups of compose_low_rank with wgmma, and the layout of
// their shared memory.
#pragma once

#include "arguments.h"
#include "compose_low_rank_config.h"
#include "cuda/async_copy.cuh"

namespace dorajit::kernels {

template <ElementType kType>
inline constexpr int kLowRankSize = size_in_bytes(kType);
template <ElementType kType>
inline constexpr int kLowRankBoxColumns = kLowRankRowBytes / size_in_bytes(kType);

template <LowRankConfig kConfig, ElementType... kTypes>
struct LowRankTiles {
  static constexpr ElementType kType[] = {kTypes...};
  static_assert(sizeof...(kTypes) == kLowRankOperands, "one element type per operand");
  static constexpr ElementType kFactorType = kType[kLowRankLow];
  static constexpr ElementType kResultType = kType[kLowRankResult];
  static constexpr ElementType kOutType = kType[kLowRankOut];
  static constexpr ElementType kInnerType = kType[kLowRankInner];
  static constexpr bool kHasInner = kInnerType != ElementType::kAbsent;
  static_assert(kFactorType == kType[kLowRankLoraB] && size_in_bytes(kFactorType) == 2,
                "both factors have one 16-bit type");

  static constexpr bool kByTurns = kConfig.by_turns;
  static constexpr int kColumns = kConfig.columns;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kGroupThreads = 128;
  static constexpr int kThreads = (kLowRankGroups + 1) * kGroupThreads;
  static constexpr int kGroupRows = low_rank_group_rows(kConfig);
  static constexpr int kSlabs = kGroupRows / 64;
  static constexpr int kStrip = kLowRankStrip;
  static constexpr int kStrips = kColumns / kStrip;
  static constexpr int kPieces = kStrip / 16;  // per strip, of 16 columns each
  static_assert(kGroupRows % 64 == 0 && (kColumns == 128 || kColumns == 256) &&
                    kSlabs * kColumns <= 256,
                "a group's products fit 128 registers of a thread");
  // Warpgroups that read a stage.
  static constexpr int kReaders = kByTurns ? 1 : kLowRankGroups;

  static constexpr int kElementBytes = low_rank_element_bytes(kResultType, kOutType, kInnerType);
  static constexpr int kLowBytes = kConfig.rows * kLowRankRowBytes;
  static constexpr int kStageBytes = low_rank_stage_bytes(kConfig);
  static constexpr int kTileBytes = kGroupRows * kColumns * kElementBytes;  // per group
  static constexpr int kTableBytes = kColumns * 2 * 4;                      // per group
  // Bytes of an element in shared memory that precede each output.
  static constexpr int kOutOffset =
      size_in_bytes(kOutType) == size_in_bytes(kResultType) ? 0 : size_in_bytes(kResultType);
  static constexpr int kInnerOffset = kElementBytes - size_in_bytes(kInnerType);

  struct Memory {
    static constexpr int kTiles = kStages * kStageBytes;
    static constexpr int kTables = kTiles + kLowRankGroups * kTileBytes;
    static constexpr int kBarriers = kTables + kLowRankGroups * kTableBytes;
    static_assert(kBarriers + 8 * low_rank_barriers(kConfig) ==
                  low_rank_wgmma_shared_bytes(kConfig, kElementBytes));

    unsigned base;

    __device__ __forceinline__ unsigned stage(int i) const { return base + i * kStageBytes; }
    // A strip of the group's tile of an operand, which `offset` bytes of each element precede.
    template <ElementType kOwn>
    __device__ __forceinline__ unsigned strip(int group, int offset, int i) const {
      return base + kTiles + group * kTileBytes +
             kGroupRows * (kColumns * offset + i * kStrip * kLowRankSize<kOwn>);
    }
    // Gain and bias of every column, interleaved.
    __device__ __forceinline__ unsigned table(int group) const {
      return base + kTables + group * kTableBytes;
    }
    __device__ __forceinline__ Barrier barrier(int i) const { return {base + kBarriers + 8 * i}; }
    __device__ __forceinline__ Pipeline<kStages> stages() const { return {base + kBarriers}; }
    __device__ __forceinline__ Barrier strip_full(int group, int i) const {
      return barrier(2 * kStages + group * kStrips + i);
    }
    __device__ __forceinline__ Barrier strip_composed(int group, int i) const {
      return barrier(2 * kStages + (kLowRankGroups + group) * kStrips + i);
    }
    __device__ __forceinline__ Barrier turn(int group) const {
      return barrier(2 * (kStages + kLowRankGroups * kStrips) + group);
    }

    __device__ __forceinline__ void initialise_barriers() const {
      stages().initialise(1, kReaders);
      for (int group = 0; group < kLowRankGroups; ++group) {
        turn(group).initialise(kGroupThreads / 32);
        for (int i = 0; i < kStrips; ++i) {
          strip_full(group, i).initialise(1);
          strip_composed(group, i).initialise(kGroupThreads / 32);
        }
      }
      publish_barriers();
    }
  };

  // The accumulators of a thread.
  using Products = float[kSlabs][kColumns / 2];

  struct Tile {
    int row;
    int column;
  };

  // The tiles of a program: tile `first` and every step-th tile after it.
  struct Task {
    int rank_stages;
    int across;  // tiles per row of tiles
    int tiles;   // of the matrix, in row-major order
    int first;
    int step;

    __device__ __forceinline__ explicit Task(const KernelArguments& arguments)
        : rank_stages(static_cast<int>(
              (low_rank_depth(arguments.scalars[0], arguments.sizes[kLowRankRank]) + kLowRankStep -
               1) /
              kLowRankStep)),
          across(static_cast<int>((arguments.sizes[kLowRankColumns] + kColumns - 1) / kColumns)),
          tiles(
              static_cast<int>((arguments.sizes[kLowRankRows] + kConfig.rows - 1) / kConfig.rows) *
              across),
          first(static_cast<int>(blockIdx.x)),
          step(static_cast<int>(gridDim.x)) {}

    __device__ __forceinline__ Tile tile(int i) const {
      return {i / across * kConfig.rows, i % across * kColumns};
    }
    // The same for one group: its first tile, its step, and its share of tile i.
    __device__ __forceinline__ int first_of(int group) const {
      return first + (kByTurns ? group * step : 0);
    }
    __device__ __forceinline__ int step_of_group() const {
      return kByTurns ? kLowRankGroups * step : step;
    }
    __device__ __forceinline__ Tile tile_of(int group, int i) const {
      Tile own = tile(i);
      if (!kByTurns) own.row += group * kGroupRows;
      return own;
    }
  };
};

}  // namespace dorajit::kernels
