// DORAJIT_FORMULA marks a function that host and device compile alike. Includes nothing.
#pragma once

#ifdef __CUDACC__
#define DORAJIT_FORMULA __host__ __device__ __forceinline__
#else
#define DORAJIT_FORMULA inline __attribute__((always_inline))
#endif
