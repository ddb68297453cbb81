// Pairs of programs that access each other's shared memory (a cluster of two thread blocks): sm_90
// and newer.
#pragma once

#include "cuda/async_copy.cuh"

namespace dorajit::kernels {

// The rank of this program in its pair: 0 or 1.
__device__ __forceinline__ unsigned pair_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Maps `address` to the same place in the program of rank `rank`, for the functions below.
__device__ __forceinline__ unsigned address_in_pair(unsigned address, unsigned rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// Starts to copy `bytes` bytes, a multiple of 16, from this program to `to`, which may lie in the
// other program; `full` must lie in the same program as `to`.
__device__ __forceinline__ void copy_in_pair(unsigned to, unsigned from, unsigned bytes,
                                             Barrier full) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to),
      "r"(from), "r"(bytes), "r"(full.address)
      : "memory");
}

// Waits until all threads of both programs arrive; their earlier writes are then visible.
__device__ __forceinline__ void wait_for_pair() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

}  // namespace dorajit::kernels
