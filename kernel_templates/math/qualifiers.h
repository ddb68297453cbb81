// DORAJIT_FORMULA marks a function that is compiled for host and device. DORAJIT_UNROLL marks a
// loop whose arrays must stay in registers. Includes nothing.
#pragma once

#ifdef __CUDACC__
#define DORAJIT_FORMULA __host__ __device__ __forceinline__
#define DORAJIT_UNROLL _Pragma("unroll")
#else
#define DORAJIT_FORMULA inline __attribute__((always_inline))
#define DORAJIT_UNROLL
#endif
