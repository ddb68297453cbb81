// The main loops of products of low rank: consumers of a ring of stages, tiles in shared memory.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/tile_copy.cuh"
#include "cuda/wgmma.cuh"

namespace dorajit::kernels {

// wgmma, by a warpgroup that has one arrival at each empty barrier of the pipeline. `start(step,
// stage)` starts the products of a stage; those of the next stage are in flight when a stage is
// released. Calls `when_started()` once all products are.
template <int kStages, class Products, class Start, class WhenStarted>
__device__ __forceinline__ void multiply_stages(const Pipeline<kStages>& stages, int steps,
                                                PipelineState<kStages>& at, Products& products,
                                                const Start& start,
                                                const WhenStarted& when_started) {
  const bool releases = threadIdx.x % 128 == 0;
  int unreleased = -1;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    stages.wait(at);
    keep_in_registers(products);
    begin_products();
    start(step, at.index);
    commit_products();
    if (unreleased >= 0) {
      wait_for_products<1>();
      if (releases) stages.empty(unreleased).arrive();
    }
    unreleased = at.index;
    at.advance();
  }
  when_started();
  keep_in_registers(products);
  wait_for_products<0>();
  keep_in_registers(products);
  if (unreleased >= 0 && releases) stages.empty(unreleased).arrive();
}

// mma.sync, by a whole program, whose threads fill the stages with asynchronous copies themselves.
// They have started kStages - 1 of them, at least one, before. `start(step, stage)` starts to fill
// the stage that is needed kStages - 1 steps later, `multiply(step, stage)` multiplies.
template <int kStages, class Start, class Multiply>
__device__ __forceinline__ void multiply_stages(int steps, int& stage, const Start& start,
                                                const Multiply& multiply) {
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    start(step, (stage > 0 ? stage : kStages) - 1);
    multiply(step, stage);
    if (++stage == kStages) stage = 0;
  }
}

}  // namespace dorajit::kernels
