// DORAJIT_FORMULA marks a function that host and device compile alike; DORAJIT_UNROLL a loop whose
// arrays must stay in registers. Includes nothing.
#pragma once

#ifdef __CUDACC__
#define DORAJIT_FORMULA __host__ __device__ __forceinline__
#define DORAJIT_UNROLL _Pragma("unroll")
#else
#define DORAJIT_FORMULA inline __attribute__((always_inline))
#define DORAJIT_UNROLL
#endif
