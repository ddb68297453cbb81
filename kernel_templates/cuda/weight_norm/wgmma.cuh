// weight_norm with wgmma, for A and B of one 16-bit type or as pairs: sm_90a.
//
// A program loops over tasks: `rows` rows and a part of the columns. Shared memory keeps the rows
// of B from task to task, or as many blocks of 64 of the rank as fit. Warps of one warpgroup load
// by TMA: aligned rows of B, tiles of A (each with its block of B if that is not resident), and
// units of W (128 bytes by `rows`). A and W have a ring of buffers each, which spans tasks. The
// other warpgroups take 64 rows each: they multiply, add W, square and sum in registers. W and A
// are aligned to 16 bytes, and so are their rows; B may have any alignment.
//
// Measured on an H100 and no faster: clusters that share tiles of A by multicast (a buffer is free
// only when both programs have used it: twice the time), parts of a row added within a cluster
// instead of by a second stage, three groups of 64 rows (B leaves too little memory for A), and one
// group held a block behind the other. If all of B were resident, programs beyond rank 384 would
// have 64 rows and take 1.5 times as long.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/main_loop.cuh"
#include "cuda/matrix_fragments.cuh"
#include "cuda/tile_copy.cuh"
#include "cuda/weight_norm/epilogue.cuh"
#include "cuda/weight_norm/rows.cuh"
#include "cuda/weight_norm/tile_scheduler.cuh"
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

template <WeightNormConfig kConfig, ElementType... kTypes>
struct WeightNormWgmma {
  using Op = WeightNormOperands<kTypes...>;
  using Memory = WgmmaSharedMemory<kConfig>;
  static constexpr ElementType kFactorType = Op::kFactorType;
  static constexpr ElementType kWeightType = Op::kType[kNormWeight];
  static_assert(kConfig.columns == kWgmmaColumns, "a tile must be as wide as an instruction");

  static constexpr int kGroups = kConfig.rows / 64;  // warpgroups that multiply
  static constexpr int kGroupThreads = 128;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  using Units = NormUnits<kWeightType>;
  static constexpr int kUnitColumns = Units::kColumns;
  static constexpr int kUnitsPerTile = kConfig.columns / kUnitColumns;
  static constexpr int kSteps = kConfig.rank_step / 16;
  static constexpr bool kStreams = wgmma_streams(kConfig);
  static_assert(!kStreams || kConfig.rank_step == kNormRankBlock,
                "a stage must hold one block of B");

  struct Storage {
    unsigned base;
    unsigned barriers;

    __device__ __forceinline__ Pipeline<1> factors() const { return {barriers}; }
    __device__ __forceinline__ Pipeline<kConfig.stages> stages() const {
      return {barriers + Pipeline<1>::kBytes};
    }
    __device__ __forceinline__ Pipeline<kConfig.weight_units> units() const {
      return {stages().barriers + Pipeline<kConfig.stages>::kBytes};
    }
    __device__ __forceinline__ unsigned stage(int i) const {
      return base + Memory::kStages + i * Memory::kStageBytes;
    }
    __device__ __forceinline__ unsigned unit(int i) const {
      return base + Memory::kUnits + i * Memory::kUnitBytes;
    }
    __device__ __forceinline__ unsigned factor() const { return base + Memory::kFactor; }

    __device__ __forceinline__ void initialise() const {
      factors().initialise(1, kGroups);
      stages().initialise(1, kGroups);
      units().initialise(1, kGroups * 4);
      publish_barriers();
    }
  };

  struct Task : NormTask {
    int rank;  // 0 if B A has no effect

    __device__ __forceinline__ int rank_stages() const {
      return (rank + kConfig.rank_step - 1) / kConfig.rank_step;
    }
    // Whether a block of B is loaded with its tile of A.
    __device__ __forceinline__ bool streams(int block) const {
      return kStreams && block >= wgmma_resident_blocks(kConfig, rank);
    }
  };

  // Whether TMA can load B.
  static __device__ __forceinline__ bool has_aligned_factor(const KernelArguments& arguments) {
    return Op::kHasPairs || has_aligned_rows(Op::lora_b(arguments));
  }

  template <class Visit>
  static __device__ __forceinline__ void visit_tasks(const KernelArguments& arguments,
                                                     const NormParts& parts, const Visit& visit) {
    const int rank = Op::factor_rank(arguments);
    visit_norm_tasks(arguments, parts, kConfig.rows, kConfig.columns,
                     [&](const NormTask& task) { visit(Task{task, rank}); });
  }

  // Loads B's resident blocks once the warpgroups no longer read the previous rows.
  static __device__ __forceinline__ void load_factor(const Task& task, const Storage& storage,
                                                     const TensorMap& map, PipelineState<1>& at) {
    const int all = wgmma_blocks(task.rank);
    const int resident = wgmma_resident_blocks(kConfig, task.rank);
    const int blocks = all < resident ? all : resident;
    storage.factors().acquire(at);
    storage.factors().full(0).arrive_and_expect(blocks * Memory::kBlockBytes);
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      copy_box(storage.factor() + block * Memory::kBlockBytes, map, block * 64,
               static_cast<int>(task.first_row), storage.factors().full(0));
    }
    at.advance();
  }

  static __device__ __forceinline__ void load_stages(const Task& task, const Storage& storage,
                                                     const TensorMap& lora_a,
                                                     const TensorMap& lora_b,
                                                     bool has_aligned_factor,
                                                     PipelineState<kConfig.stages>& at) {
#pragma unroll 1
    for (int tile = task.first_tile; tile < task.last_tile; ++tile) {
#pragma unroll 1
      for (int step = 0; step < task.rank_stages(); ++step) {
        const bool bstorage_factor = has_aligned_factor && task.streams(step);
        const unsigned to = storage.stage(at.index);
        const Barrier full = storage.stages().full(at.index);
        storage.stages().acquire(at);
        full.arrive_and_expect(Memory::kTileBytes + (bstorage_factor ? Memory::kBlockBytes : 0));
        for (int block = 0; block < kConfig.columns / 64; ++block) {
          copy_box(to + block * kConfig.rank_step * Memory::kRowBytes, lora_a,
                   tile * kConfig.columns + block * 64, step * kConfig.rank_step, full);
        }
        if (bstorage_factor) {
          copy_box(to + Memory::kTileBytes, lora_b, step * 64, static_cast<int>(task.first_row),
                   full);
        }
        at.advance();
      }
    }
  }

  static __device__ __forceinline__ void load_units(const Task& task, const Storage& storage,
                                                    const TensorMap& map,
                                                    PipelineState<kConfig.weight_units>& at) {
#pragma unroll 1
    for (int tile = task.first_tile; tile < task.last_tile; ++tile) {
      for (int unit = 0; unit < kUnitsPerTile; ++unit) {
        storage.units().acquire(at);
        storage.units().full(at.index).arrive_and_expect(Memory::kUnitBytes);
        copy_box(storage.unit(at.index), map, tile * kConfig.columns + unit * kUnitColumns,
                 static_cast<int>(task.first_row), storage.units().full(at.index));
        at.advance();
      }
    }
  }

  // Copies a block of this warpgroup's rows of B, of any alignment, to its place among the
  // program's rows: a thread copies two neighbours of a row, with kAtOnce rows in flight.
  template <int kAtOnce>
  static __device__ __forceinline__ void load_block(const KernelArguments& arguments,
                                                    const Task& task, int group, int block,
                                                    unsigned to) {
    const OperandArgument& operand = Op::lora_b(arguments);
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

  // Makes the stores of this warpgroup visible to its products.
  static __device__ __forceinline__ void publish_blocks(int group) {
    publish_shared_stores();
    wait_for_group(group);
  }

  static __device__ __forceinline__ void wait_for_group(int group) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroupThreads) : "memory");
  }

  static __device__ __forceinline__ void load_resident_blocks(const KernelArguments& arguments,
                                                              const Task& task,
                                                              const Storage& storage, int group) {
    wait_for_group(group);  // its warps may still multiply by the previous rows
#pragma unroll 1
    for (int block = 0; block < wgmma_blocks(task.rank) && !task.streams(block); ++block) {
      load_block<8>(arguments, task, group, block, storage.factor() + block * Memory::kBlockBytes);
    }
    publish_blocks(group);
  }

  using Products = float[kConfig.columns / 2];
  using NormSums = NormFragments<2>;

  // The products of this warpgroup's rows with `steps` stages from stage `first` of the rank on.
  // Overwrites `products`.
  static __device__ __forceinline__ void multiply_block(const KernelArguments& arguments,
                                                        const Task& task, const Storage& storage,
                                                        int group, int first, int steps,
                                                        PipelineState<kConfig.stages>& at,
                                                        Products& products) {
    const auto start = [&](int step, int stage) {
      const int k = (first + step) * kConfig.rank_step;
      unsigned block = storage.factor() + k / 64 * Memory::kBlockBytes;
      if (task.streams(k / 64)) {
        block = storage.stage(stage) + Memory::kTileBytes;
        if (!has_aligned_factor(arguments)) {
          load_block<2>(arguments, task, group, k / 64, block);
          publish_blocks(group);
        }
      }
      const unsigned factor = block + group * 64 * Memory::kRowBytes + k % 64 * 2;
      const unsigned long long left = describe_tile(factor, 16);
      const unsigned long long right =
          describe_tile(storage.stage(stage), kConfig.rank_step * Memory::kRowBytes);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        multiply_tiles<kFactorType>(products, later_tile(left, i * 32),
                                    later_tile(right, i * 16 * Memory::kRowBytes), step + i > 0);
      }
    };
    multiply_stages(storage.stages(), steps, at, products, start, [] {});
  }

  // Computes a tile of B A for this warpgroup's rows. While this warpgroup adds a block to the sum,
  // the tensor cores multiply for the other one.
  static __device__ __forceinline__ void multiply_tile(const KernelArguments& arguments,
                                                       const Task& task, const Storage& storage,
                                                       int group, PipelineState<kConfig.stages>& at,
                                                       Products& sum) {
    constexpr int kBlockStages = kNormRankBlock / kConfig.rank_step;
    const int stages = task.rank_stages();
    multiply_block(arguments, task, storage, group, 0,
                   stages < kBlockStages ? stages : kBlockStages, at, sum);
#pragma unroll 1
    for (int first = kBlockStages; first < stages; first += kBlockStages) {
      const int left = stages - first;
      Products block;
      multiply_block(arguments, task, storage, group, first,
                     left < kBlockStages ? left : kBlockStages, at, block);
#pragma unroll
      for (int i = 0; i < kConfig.columns / 2; ++i) sum[i] = sum[i] + block[i];
    }
  }

  // Of this lane's row in the eight rows from `row` on.
  static __device__ __forceinline__ float scale_of(const KernelArguments& arguments, float scale,
                                                   long long row) {
    return Op::scale_of_row(arguments, scale, row + threadIdx.x % 32 / 4);
  }

  static __device__ __forceinline__ void sum_rows(const KernelArguments& arguments,
                                                  const NormParts& parts, const Storage& storage,
                                                  int group) {
    float scale = static_cast<float>(arguments.scalars[0]);
    asm volatile("" : "+f"(scale));  // keeps the compiler from converting it for each tile
    Op::wait_for_pairs();
    PipelineState<1> factor;
    PipelineState<kConfig.stages> stage;
    PipelineState<kConfig.weight_units> unit;
    Products products = {};
    const int first_row = group * 64 + threadIdx.x % kGroupThreads / 32 * 16;  // of this warp
    visit_tasks(arguments, parts, [&](const Task& task) {
      if (task.rank > 0 && task.has_new_rows) {
        if (has_aligned_factor(arguments)) {
          storage.factors().wait(factor);
          factor.advance();
        } else {
          load_resident_blocks(arguments, task, storage, group);
        }
      }
      const float scales[2] = {scale_of(arguments, scale, task.first_row + first_row),
                               scale_of(arguments, scale, task.first_row + first_row + 8)};
      NormSums sums;
      for (int tile = task.first_tile; tile < task.last_tile; ++tile) {
        if (task.rank > 0) multiply_tile(arguments, task, storage, group, stage, products);
#pragma unroll
        for (int i = 0; i < kUnitsPerTile; ++i) {
          storage.units().wait(unit);
          Units::add(storage.unit(unit.index), first_row, scales, products + i * kUnitColumns / 2,
                     storage.units().empty(unit.index), sums);
          unit.advance();
        }
        if ((tile + 1) * kConfig.columns % kNormSpan == 0 || tile + 1 == task.last_tile) {
          sums.end_span();
        }
      }
      if (task.has_last && threadIdx.x % kGroupThreads == 0) storage.factors().empty(0).arrive();
      const long long row = task.first_row + first_row + NormSums::kept_place();
      if (NormSums::stores() && row < arguments.sizes[kNormRows]) {
        Op::finish_part(arguments, parts, task.part, row, sums.root());
      }
    });
  }

  static __device__ __forceinline__ void run(const KernelArguments& arguments,
                                             const TensorMap& weight, const TensorMap& lora_a,
                                             const TensorMap& lora_b) {
    extern __shared__ unsigned char shared[];
    const NormParts parts = norm_parts(arguments.sizes[kNormColumns], kConfig.max_parts);
    const unsigned base = (shared_address(shared) + 1023) & ~1023U;
    const Storage storage{base, base + Memory::barriers(Op::factor_rank(arguments))};
    let_second_stage_start();
    if (threadIdx.x == 0) {
      storage.initialise();
    } else if (threadIdx.x == kGroups * kGroupThreads) {
      if (Op::factor_rank(arguments) > 0) prefetch_map(lora_a);
    } else if (threadIdx.x == kGroups * kGroupThreads + 32) {
      if (arguments.sizes[kNormColumns] > 0) prefetch_map(weight);
    }
    __syncthreads();
    // The shuffle tells the compiler that the quotient is the same in all lanes.
    const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
    if (group < kGroups) {
      if constexpr (kGroups > 1) take_registers<232>();
      sum_rows(arguments, parts, storage, group);
    } else {
      if constexpr (kGroups > 1) leave_registers<40>();
      const bool is_aligned = has_aligned_factor(arguments);
      const int producer = static_cast<int>(threadIdx.x) - kGroups * kGroupThreads;
      if (producer == 0) {
        PipelineState<kConfig.stages> at;
        Op::wait_for_pairs();
        visit_tasks(arguments, parts, [&](const Task& task) {
          load_stages(task, storage, lora_a, lora_b, is_aligned, at);
        });
      } else if (producer == 32) {
        PipelineState<kConfig.weight_units> at;
        visit_tasks(arguments, parts,
                    [&](const Task& task) { load_units(task, storage, weight, at); });
      } else if (producer == 64 && is_aligned && Op::factor_rank(arguments) > 0) {
        PipelineState<1> at;
        Op::wait_for_pairs();
        visit_tasks(arguments, parts, [&](const Task& task) {
          if (!task.has_new_rows) return;
          load_factor(task, storage, lora_b, at);
        });
      }
    }
  }
};

}  // namespace dorajit::kernels
