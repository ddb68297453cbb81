// Copies of tiles by the copy engine (TMA) between global and shared memory, and the barriers that
// signal their completion: sm_90 and newer.
#pragma once

namespace dorajit::kernels {

// A CUtensorMap, encoded by the host and passed to a kernel by value.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// An mbarrier in shared memory. Its phases alternate in parity. A new barrier is in phase 0, so a
// wait for the end of the preceding phase, which has parity 1, returns at once.
struct Barrier {
  unsigned address;

  __device__ __forceinline__ void initialise(unsigned arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals));
  }
  __device__ __forceinline__ void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
  }
  // Arrives, and extends the phase until `bytes` more bytes have arrived.
  __device__ __forceinline__ void arrive_and_expect(unsigned bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void wait(unsigned parity) const {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(address),
        "r"(parity)
        : "memory");
  }
};

// Makes initialised barriers visible to the copy engine; a __syncthreads() must follow.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Orders this thread's stores to shared memory before accesses by the tensor cores and the copy
// engine after the next barrier.
__device__ __forceinline__ void publish_shared_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Starts to copy the map's box at (column, row); elements beyond the tensor are set to zero.
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap& map, int column, int row,
                                         Barrier full) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(full.address)
      : "memory");
}

// Prefetches a map before its first use.
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Starts to store a box from shared memory at (column, row) of the map's matrix. Rows beyond the
// matrix are dropped. Columns beyond it are dropped in units of 16 bytes: a row that ends within a
// unit is written up to the unit's end.
__device__ __forceinline__ void store_box(const TensorMap& map, int column, int row,
                                          unsigned from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
      "r"(column), "r"(row), "r"(from)
      : "memory");
}

// Commits this thread's box stores since the last commit as one group.
__device__ __forceinline__ void end_stored_boxes() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but the last kPending groups of this thread have been read from shared memory.
template <int kPending>
__device__ __forceinline__ void wait_for_stored_boxes() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// A position in a pipeline, and the parity of the current phase of its barriers.
template <int kStages>
struct PipelineState {
  int index = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void advance() {
    if (++index == kStages) {
      index = 0;
      parity ^= 1;
    }
  }
};

// The barriers of a ring of buffers that producers fill and consumers empty: from the address
// `barriers` on one for each full stage, and behind them one for each empty stage.
template <int kStages>
struct Pipeline {
  static constexpr int kBytes = 2 * kStages * 8;

  unsigned barriers;

  __device__ __forceinline__ Barrier full(int i) const { return {barriers + 8 * i}; }
  __device__ __forceinline__ Barrier empty(int i) const { return {barriers + 8 * (kStages + i)}; }

  // `producers` and `consumers`: arrivals that fill and that empty a stage.
  __device__ __forceinline__ void initialise(unsigned producers, unsigned consumers) const {
    for (int i = 0; i < kStages; ++i) {
      full(i).initialise(producers);
      empty(i).initialise(consumers);
    }
  }
  // A producer waits until the stage is empty.
  __device__ __forceinline__ void acquire(const PipelineState<kStages>& at) const {
    empty(at.index).wait(at.parity ^ 1);
  }
  // A consumer waits until the stage is full.
  __device__ __forceinline__ void wait(const PipelineState<kStages>& at) const {
    full(at.index).wait(at.parity);
  }
};

}  // namespace dorajit::kernels
