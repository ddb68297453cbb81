// c = a b^T in bfloat16 with float32 sums on the tensor cores of sm_90a: b has the layout of a
// linear layer's weight. A thread block computes BM x BN elements of c. One thread of the last
// warpgroup loads tiles of a and b by TMA into a ring of STAGES buffers; the other GROUPS
// warpgroups multiply them by wgmma. A buffer has a barrier that says that it is full, and one that
// says that all warpgroups have read it. Rows of tiles have 128 bytes (64 elements of k) with the
// 128-byte swizzle. WIDE rows of blocks run side by side, so that they find the tiles of b in the
// L2 cache.

constexpr int kColumns = 64;  // of k in a row of a tile
constexpr int kRowBytes = 2 * kColumns;

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// A new barrier is in a phase of parity 0, so that a wait for the end of parity 1 returns at once.
__device__ __forceinline__ void initialise(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait_for(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Elements beyond the matrix become zero.
__device__ __forceinline__ void load_box(unsigned to, const CUtensorMap& map, int column, int row,
                                         unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// What wgmma reads: a tile of rows of 128 bytes, swizzled, in groups of eight rows.
__device__ __forceinline__ unsigned long long describe_tile(unsigned address) {
  constexpr unsigned long long kSwizzle128 = 1ULL << 62;
  constexpr unsigned long long kEightRows = 8 * kRowBytes >> 4;
  return kSwizzle128 | kEightRows << 32 | 1ULL << 16 | (address & 0x3ffff) >> 4;
}

#define REGISTERS_0                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_1                                                                  \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_2                                                                  \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REGISTERS_3                                                                              \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define FOUR_SUMS(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SIXTEEN_SUMS(i) FOUR_SUMS(i), FOUR_SUMS(i + 4), FOUR_SUMS(i + 8), FOUR_SUMS(i + 12)
#define SUMS(i) SIXTEEN_SUMS(i), SIXTEEN_SUMS(i + 16)
#define MULTIPLY(columns, registers, left_operand, right_operand, predicate, ...) \
  asm volatile(                                                                   \
      "{\n"                                                                       \
      ".reg .pred adds;\n"                                                        \
      "setp.ne.b32 adds, " predicate                                              \
      ", 0;\n"                                                                    \
      "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" registers \
      "}, " left_operand ", " right_operand                                       \
      ", adds, 1, 1, 0, 0;\n"                                                     \
      "}"                                                                         \
      : __VA_ARGS__                                                               \
      : "l"(left), "l"(right), "r"(1))

// Adds the product of 64 rows of the left tile and all rows of the right one, of 16 columns of k.
// Thread t of a warpgroup holds columns 8 j + 2 (t % 4) + {0, 1} of rows 16 (t / 32) + t % 32 / 4
// (+ 8) in elements 4 j + {0, 1} (+ 2).
__device__ __forceinline__ void multiply(float (&sum)[32], unsigned long long left,
                                         unsigned long long right) {
  MULTIPLY("64", REGISTERS_0, "%32", "%33", "%34", SUMS(0));
}
__device__ __forceinline__ void multiply(float (&sum)[64], unsigned long long left,
                                         unsigned long long right) {
  MULTIPLY("128", REGISTERS_0 ", " REGISTERS_1, "%64", "%65", "%66", SUMS(0), SUMS(32));
}
__device__ __forceinline__ void multiply(float (&sum)[128], unsigned long long left,
                                         unsigned long long right) {
  MULTIPLY("256", REGISTERS_0 ", " REGISTERS_1 ", " REGISTERS_2 ", " REGISTERS_3, "%128", "%129",
           "%130", SUMS(0), SUMS(32), SUMS(64), SUMS(96));
}

// Keeps the compiler from moving accesses to the sums across what the tensor cores do.
template <int kCount>
__device__ __forceinline__ void hold(float (&sum)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}

// Waits until at most kUnfinished groups of products are unfinished.
template <int kUnfinished>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kUnfinished) : "memory");
}

// The ring's buffers, in shared memory from `base` on: the tiles of a, those of b, and the barriers
// behind all of them.
template <int BM, int BN, int BK, int STAGES>
struct Ring {
  static constexpr int kBytesOfA = BM * BK * 2;
  static constexpr int kBytes = kBytesOfA + BN * BK * 2;
  unsigned base;

  __device__ unsigned a(int stage, int block) const {
    return base + stage * kBytes + block * BM * kRowBytes;
  }
  __device__ unsigned b(int stage, int block) const {
    return base + stage * kBytes + kBytesOfA + block * BN * kRowBytes;
  }
  __device__ unsigned full(int stage) const { return base + STAGES * kBytes + 8 * stage; }
  __device__ unsigned empty(int stage) const { return full(STAGES + stage); }
};

__device__ __forceinline__ unsigned pair_of(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

template <int BM, int BN, int BK, int STAGES, int GROUPS, int WIDE>
__global__ void __launch_bounds__(128 * (GROUPS + 1))
    matmul(const T* a, const T* b, T* c, const __grid_constant__ CUtensorMap a_map,
           const __grid_constant__ CUtensorMap b_map, int m, int n, int k) {
  constexpr int kBlocks = BK / kColumns;      // tiles of 64 columns of k in a stage
  constexpr int kTiles = BM / (64 * GROUPS);  // of 64 rows for each warpgroup
  extern __shared__ unsigned char shared[];
  const Ring<BM, BN, BK, STAGES> ring{(shared_address(shared) + 1023) & ~1023U};

  const int rows_of_blocks = (m + BM - 1) / BM;
  const int columns_of_blocks = (n + BN - 1) / BN;
  const int block = static_cast<int>(blockIdx.x);
  const int first = block / (WIDE * columns_of_blocks) * WIDE;
  const int wide = min(WIDE, rows_of_blocks - first);
  const int within = block % (WIDE * columns_of_blocks);
  const int row = (first + within % wide) * BM;
  const int column = within / wide * BN;
  const int steps = (k + BK - 1) / BK;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      initialise(ring.full(stage), 1);
      initialise(ring.empty(stage), GROUPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  // The shuffle tells the compiler that the number is the same in all lanes.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);

  if (group == GROUPS) {
    if (threadIdx.x != 128 * GROUPS) return;
    for (int step = 0; step < steps; ++step) {
      const int stage = step % STAGES;
      wait_for(ring.empty(stage), (step / STAGES & 1) ^ 1);
      expect(ring.full(stage), ring.kBytes);
      for (int i = 0; i < kBlocks; ++i) {
        const int along = step * BK + i * kColumns;
        load_box(ring.a(stage, i), a_map, along, row, ring.full(stage));
        load_box(ring.b(stage, i), b_map, along, column, ring.full(stage));
      }
    }
    return;
  }

  float sums[kTiles][BN / 2] = {};
  const bool releases = threadIdx.x % 128 == 0;
  for (int step = 0; step < steps; ++step) {
    const int stage = step % STAGES;
    wait_for(ring.full(stage), step / STAGES & 1);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) hold(sums[tile]);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < BK / 16; ++i) {
      const int block_of_k = i * 16 / kColumns;
      const int bytes = i * 16 % kColumns * 2;
      const unsigned long long right = describe_tile(ring.b(stage, block_of_k) + bytes);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int first_row = (group * kTiles + tile) * 64;
        multiply(sums[tile],
                 describe_tile(ring.a(stage, block_of_k) + first_row * kRowBytes + bytes), right);
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) hold(sums[tile]);
    // The products of the step before have been read.
    wait_for_products<1>();
    if (step > 0 && releases) arrive(ring.empty((step - 1) % STAGES));
  }
  wait_for_products<0>();

  const int thread = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    hold(sums[tile]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at =
          row + (group * kTiles + tile) * 64 + thread / 32 * 16 + thread % 32 / 4 + 8 * half;
      if (at >= m) continue;
#pragma unroll
      for (int j = 0; j < BN / 8; ++j) {
        const int to = column + 8 * j + 2 * (thread % 4);
        if (to >= n) continue;
        *reinterpret_cast<unsigned*>(c + static_cast<long long>(at) * n + to) =
            pair_of(sums[tile][4 * j + 2 * half], sums[tile][4 * j + 2 * half + 1]);
      }
    }
  }
}
