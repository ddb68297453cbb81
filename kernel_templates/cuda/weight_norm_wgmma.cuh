// weight_norm by wgmma, for A, B of one 16-bit type: sm_90a.
//
// A program has `rows` rows and a part of the columns. Its rows of B stay in shared memory, or as
// many blocks of 64 of the rank as it holds. One warp brings them and tiles of A by TMA, each
// beside a block of B that does not stay, another units of W (128 bytes by `rows`), through a ring
// of buffers each; the other warpgroups take 64 rows each: they multiply, add W, square and sum in
// registers. W and A are aligned to 16 bytes, and so are their rows; B need not be.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/matrix_fragments.cuh"
#include "cuda/norm_fragments.cuh"
#include "cuda/tile_copy.cuh"
#include "cuda/weight_norm_memory.cuh"
#include "cuda/weight_norm_rows.cuh"
#include "cuda/wgmma.cuh"
#include "weight_norm_config.h"

namespace dorajit::kernels {

template <WeightNormConfig kConfig, ElementType... kTypes>
struct WeightNormWgmma {
  using Op = WeightNormOperands<kTypes...>;
  using Memory = WgmmaSharedMemory<kConfig>;
  static constexpr ElementType kFactorType = Op::kType[Op::kLoraA];
  static constexpr ElementType kWeightType = Op::kType[Op::kWeight];
  static_assert(kFactorType == Op::kType[Op::kLoraB], "both factors have one type");
  static_assert(kConfig.columns == kWgmmaColumns, "a tile is as wide as an instruction");

  static constexpr int kGroups = kConfig.rows / 64;  // of four warps, that multiply
  static constexpr int kGroupThreads = 128;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kUnitColumns = Memory::kRowBytes / size_in_bytes(kWeightType);
  static constexpr int kUnitsPerTile = kConfig.columns / kUnitColumns;
  static constexpr int kSteps = kConfig.rank_step / 16;
  static constexpr bool kStreams = wgmma_streams(kConfig);
  static_assert(!kStreams || kConfig.rank_step == kNormRankBlock, "a stage has a block of B");

  struct Rings {
    unsigned base;
    unsigned barriers;

    __device__ __forceinline__ Barrier barrier(int i) const { return {barriers + 8 * i}; }
    __device__ __forceinline__ Barrier factor_full() const { return barrier(0); }
    __device__ __forceinline__ Barrier stage_full(int i) const { return barrier(1 + i); }
    __device__ __forceinline__ Barrier stage_empty(int i) const {
      return barrier(1 + kConfig.stages + i);
    }
    __device__ __forceinline__ Barrier unit_full(int i) const {
      return barrier(1 + 2 * kConfig.stages + i);
    }
    __device__ __forceinline__ Barrier unit_empty(int i) const {
      return barrier(1 + 2 * kConfig.stages + kConfig.weight_units + i);
    }
    __device__ __forceinline__ unsigned stage(int i) const {
      return base + Memory::kStages + i * Memory::kStageBytes;
    }
    __device__ __forceinline__ unsigned unit(int i) const {
      return base + Memory::kUnits + i * Memory::kUnitBytes;
    }
    __device__ __forceinline__ unsigned factor() const { return base + Memory::kFactor; }

    __device__ __forceinline__ void initialise() const {
      factor_full().initialise(1);
      for (int i = 0; i < kConfig.stages; ++i) {
        stage_full(i).initialise(1);
        stage_empty(i).initialise(kGroups);
      }
      for (int i = 0; i < kConfig.weight_units; ++i) {
        unit_full(i).initialise(1);
        unit_empty(i).initialise(kGroups * 4);
      }
      publish_barriers();
    }
  };

  // What a program computes.
  struct Task {
    long long first_row;
    int first_tile;
    int last_tile;
    int rank;  // 0 where B A does not count

    __device__ __forceinline__ int rank_stages() const {
      return (rank + kConfig.rank_step - 1) / kConfig.rank_step;
    }
    // Whether a block of B comes with its tile of A.
    __device__ __forceinline__ bool streams(int block) const {
      return kStreams && block >= wgmma_resident_blocks(kConfig, rank);
    }
  };

  static __device__ __forceinline__ void bring_factor(const Task& task, const Rings& rings,
                                                      const TensorMap& map) {
    const int all = wgmma_blocks(task.rank);
    const int resident = wgmma_resident_blocks(kConfig, task.rank);
    const int blocks = all < resident ? all : resident;
    rings.factor_full().arrive_and_expect(blocks * Memory::kBlockBytes);
    for (int block = 0; block < blocks; ++block) {
      copy_box(rings.factor() + block * Memory::kBlockBytes, map, block * 64,
               static_cast<int>(task.first_row), rings.factor_full());
    }
  }

  static __device__ __forceinline__ void bring_stages(const Task& task, const Rings& rings,
                                                      const TensorMap& lora_a,
                                                      const TensorMap& lora_b,
                                                      bool has_aligned_factor) {
    RingPosition<kConfig.stages> at;
    for (int tile = task.first_tile; tile < task.last_tile; ++tile) {
      for (int step = 0; step < task.rank_stages(); ++step) {
        const bool brings_factor = has_aligned_factor && task.streams(step);
        const unsigned to = rings.stage(at.index);
        const Barrier full = rings.stage_full(at.index);
        rings.stage_empty(at.index).wait(at.parity ^ 1);
        full.arrive_and_expect(Memory::kTileBytes + (brings_factor ? Memory::kBlockBytes : 0));
        for (int block = 0; block < kConfig.columns / 64; ++block) {
          copy_box(to + block * kConfig.rank_step * Memory::kRowBytes, lora_a,
                   tile * kConfig.columns + block * 64, step * kConfig.rank_step, full);
        }
        if (brings_factor) {
          copy_box(to + Memory::kTileBytes, lora_b, step * 64, static_cast<int>(task.first_row),
                   full);
        }
        at.advance();
      }
    }
  }

  static __device__ __forceinline__ void bring_units(const Task& task, const Rings& rings,
                                                     const TensorMap& map) {
    RingPosition<kConfig.weight_units> at;
    for (int tile = task.first_tile; tile < task.last_tile; ++tile) {
      for (int unit = 0; unit < kUnitsPerTile; ++unit) {
        rings.unit_empty(at.index).wait(at.parity ^ 1);
        rings.unit_full(at.index).arrive_and_expect(Memory::kUnitBytes);
        copy_box(rings.unit(at.index), map, tile * kConfig.columns + unit * kUnitColumns,
                 static_cast<int>(task.first_row), rings.unit_full(at.index));
        at.advance();
      }
    }
  }

  // A block of this warpgroup's rows of B, of any alignment, to where the program's rows of it
  // belong: two neighbours of a row by a thread, so many of them on their way at once.
  template <int kAtOnce>
  static __device__ __forceinline__ void load_block(const KernelArguments& arguments,
                                                    const Task& task, int group, int block,
                                                    unsigned to) {
    const OperandArgument& operand = arguments.operands[Op::kLoraB];
    const auto* const data = static_cast<const unsigned short*>(operand.data);
    const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
    const int k = block * 64 + thread % 32 * 2;
#pragma unroll 1
    for (int first = group * 64 + thread / 32; first < group * 64 + 64; first += 4 * kAtOnce) {
      unsigned low[kAtOnce];
      unsigned high[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const long long row = task.first_row + first + 4 * i;
        const bool is_row = row < arguments.sizes[kNormRows];
        const unsigned short* const from = data + row * operand.row_stride + k;
        low[i] = is_row && k < task.rank ? from[0] : 0;
        high[i] = is_row && k + 1 < task.rank ? from[1] : 0;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = first + 4 * i;
        const unsigned place =
            row * Memory::kRowBytes + ((thread % 32 / 4) ^ (row % 8)) * 16 + thread % 4 * 4;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + place), "r"(low[i] | high[i] << 16)
                     : "memory");
      }
    }
  }

  // Before the products of this warpgroup read what its threads have stored.
  static __device__ __forceinline__ void publish_blocks(int group) {
    publish_shared_stores();
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroupThreads) : "memory");
  }

  static __device__ __forceinline__ void load_resident_blocks(const KernelArguments& arguments,
                                                              const Task& task, const Rings& rings,
                                                              int group) {
#pragma unroll 1
    for (int block = 0; block < wgmma_blocks(task.rank) && !task.streams(block); ++block) {
      load_block<8>(arguments, task, group, block, rings.factor() + block * Memory::kBlockBytes);
    }
    publish_blocks(group);
  }

  using Products = float[kConfig.columns / 2];
  using NormSums = NormFragments<2>;

  static __device__ __forceinline__ void keep_in_registers(Products& products) {
#pragma unroll
    for (int i = 0; i < kConfig.columns / 2; ++i) asm volatile("" : "+f"(products[i])::"memory");
  }

  // The products of `steps` stages from stage `first` of the rank on, by this warpgroup's rows. The
  // previous contents of `products` are lost.
  static __device__ __forceinline__ void multiply_block(const KernelArguments& arguments,
                                                        const Task& task, const Rings& rings,
                                                        int group, int first, int steps,
                                                        RingPosition<kConfig.stages>& at,
                                                        Products& products) {
    const bool releases = threadIdx.x % kGroupThreads == 0;
    int unreleased = -1;
    for (int step = 0; step < steps; ++step) {
      rings.stage_full(at.index).wait(at.parity);
      const int k = (first + step) * kConfig.rank_step;
      unsigned block = rings.factor() + k / 64 * Memory::kBlockBytes;
      if (task.streams(k / 64)) {
        block = rings.stage(at.index) + Memory::kTileBytes;
        if (!has_aligned_rows(arguments.operands[Op::kLoraB])) {
          load_block<2>(arguments, task, group, k / 64, block);
          publish_blocks(group);
        }
      }
      const unsigned factor = block + group * 64 * Memory::kRowBytes + k % 64 * 2;
      keep_in_registers(products);
      begin_products();
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        multiply_tiles<kFactorType>(
            products, describe_tile(factor + i * 32, 16),
            describe_tile(rings.stage(at.index) + i * 16 * Memory::kRowBytes,
                          kConfig.rank_step * Memory::kRowBytes),
            step + i > 0);
      }
      commit_products();
      if (unreleased >= 0) {
        wait_for_products<1>();
        if (releases) rings.stage_empty(unreleased).arrive();
      }
      unreleased = at.index;
      at.advance();
    }
    keep_in_registers(products);
    wait_for_products<0>();
    keep_in_registers(products);
    if (releases) rings.stage_empty(unreleased).arrive();
  }

  // A tile of B A of this warpgroup's rows. While this warpgroup adds a block to the sum, the
  // tensor cores multiply for the other.
  static __device__ __forceinline__ void multiply_tile(const KernelArguments& arguments,
                                                       const Task& task, const Rings& rings,
                                                       int group, RingPosition<kConfig.stages>& at,
                                                       Products& sum) {
    constexpr int kBlockStages = kNormRankBlock / kConfig.rank_step;
    const int stages = task.rank_stages();
    multiply_block(arguments, task, rings, group, 0, stages < kBlockStages ? stages : kBlockStages,
                   at, sum);
#pragma unroll 1
    for (int first = kBlockStages; first < stages; first += kBlockStages) {
      const int left = stages - first;
      Products block;
      multiply_block(arguments, task, rings, group, first,
                     left < kBlockStages ? left : kBlockStages, at, block);
#pragma unroll
      for (int i = 0; i < kConfig.columns / 2; ++i) sum[i] = sum[i] + block[i];
    }
  }

  // Adds the columns of one unit of W: 16 at a time.
  static __device__ __forceinline__ void add_unit(unsigned unit, int group, float scale,
                                                  const float* products, Barrier empty,
                                                  NormSums& sums) {
    constexpr int kRowBytes = Memory::kRowBytes;
    const int warp = threadIdx.x % kGroupThreads / 32;
    const int lane = threadIdx.x % 32;
    const int first = group * 64 + warp * 16;
    if constexpr (size_in_bytes(kWeightType) == 2) {
      const int row = first + lane % 16;
      unsigned weights[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        load_fragments(unit + row * kRowBytes + (((2 * i + lane / 16) ^ (row % 8)) * 16),
                       weights[i]);
      }
      __syncwarp();
      if (lane == 0) empty.arrive();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const float pair[2] = {
              Element<kWeightType>::widen(static_cast<unsigned short>(weights[i][part])),
              Element<kWeightType>::widen(static_cast<unsigned short>(weights[i][part] >> 16))};
          const float found[2] = {products[8 * i + 2 * part], products[8 * i + 2 * part + 1]};
          sums.add(part % 2, scale, found, pair);
        }
      }
    } else {
      float weights[4][2][2];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = first + lane / 4 + 8 * h;
          const int chunk = 2 * j + lane % 4 / 2;
          const unsigned from = unit + row * kRowBytes + ((chunk ^ (row % 8)) * 16) + lane % 2 * 8;
          asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                       : "=f"(weights[j][h][0]), "=f"(weights[j][h][1])
                       : "r"(from)
                       : "memory");
        }
      }
      __syncwarp();
      if (lane == 0) empty.arrive();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float found[2] = {products[4 * j + 2 * h], products[4 * j + 2 * h + 1]};
          sums.add(h, scale, found, weights[j][h]);
        }
      }
    }
  }

  static __device__ __forceinline__ void sum_rows(const KernelArguments& arguments,
                                                  const NormParts& parts, const Task& task,
                                                  const Rings& rings, int group) {
    const float scale = static_cast<float>(arguments.scalars[0]);
    if (task.rank > 0) {
      if (has_aligned_rows(arguments.operands[Op::kLoraB])) {
        rings.factor_full().wait(0);
      } else {
        load_resident_blocks(arguments, task, rings, group);
      }
    }
    RingPosition<kConfig.stages> stage;
    RingPosition<kConfig.weight_units> unit;
    NormSums sums;
    Products products = {};
    for (int tile = task.first_tile; tile < task.last_tile; ++tile) {
      if (task.rank > 0) multiply_tile(arguments, task, rings, group, stage, products);
#pragma unroll
      for (int i = 0; i < kUnitsPerTile; ++i) {
        rings.unit_full(unit.index).wait(unit.parity);
        add_unit(rings.unit(unit.index), group, scale, products + i * kUnitColumns / 2,
                 rings.unit_empty(unit.index), sums);
        unit.advance();
      }
      if ((tile + 1) * kConfig.columns % kNormSpan == 0 || tile + 1 == task.last_tile) {
        sums.end_span();
      }
    }
    const long long row = task.first_row + group * 64 + threadIdx.x % kGroupThreads / 32 * 16 +
                          NormSums::kept_place();
    if (NormSums::stores() && row < arguments.sizes[kNormRows]) {
      Op::finish_part(arguments, parts, blockIdx.y, row, sums.root());
    }
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments,
                                             const TensorMap& weight, const TensorMap& lora_a,
                                             const TensorMap& lora_b) {
    extern __shared__ unsigned char shared[];
    const long long columns = arguments.sizes[kNormColumns];
    const NormParts parts = norm_parts(columns, kConfig.most_parts);
    const int tiles = static_cast<int>((columns + kConfig.columns - 1) / kConfig.columns);
    const int tiles_of_part = static_cast<int>(parts.columns() / kConfig.columns);
    const int first_tile = static_cast<int>(blockIdx.y) * tiles_of_part;
    const int last_tile = first_tile + tiles_of_part;
    const Task task{static_cast<long long>(blockIdx.x) * kConfig.rows, first_tile,
                    last_tile < tiles ? last_tile : tiles,
                    static_cast<float>(arguments.scalars[0]) == 0.0F
                        ? 0
                        : static_cast<int>(arguments.sizes[kNormRank])};
    const unsigned base = (shared_address(shared) + 1023) & ~1023U;
    const Rings rings{base, base + Memory::barriers(task.rank)};
    let_second_stage_start();
    if (threadIdx.x == 0) rings.initialise();
    __syncthreads();
    const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
    if (group < kGroups) {
      if constexpr (kGroups > 1) take_registers<kStreams ? 232 : 240>();
      sum_rows(arguments, parts, task, rings, group);
    } else {
      if constexpr (kGroups > 1) leave_registers<kStreams ? 40 : 24>();
      if (threadIdx.x == kGroups * kGroupThreads) {
        const bool has_aligned_factor = has_aligned_rows(arguments.operands[Op::kLoraB]);
        if (task.rank > 0 && has_aligned_factor) bring_factor(task, rings, lora_b);
        bring_stages(task, rings, lora_a, lora_b, has_aligned_factor);
      } else if (threadIdx.x == kGroups * kGroupThreads + 32) {
        bring_units(task, rings, weight);
      }
    }
  }
};

}  // namespace dorajit::kernels
