// Programmatic dependent launch: a stage is set up while the one before it still runs, and waits
// for that before it reads what it left. So every stage but the first must wait. The first stage is
// an ordinary launch: it follows other libraries' kernels, which allow no early start, and then a
// dependent launch takes 0.4 us longer (H200).
#pragma once

#include "dependent_launch.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 10 * DORAJIT_DEPENDENT_LAUNCH_ARCH
#define DORAJIT_DEPENDENT_LAUNCH(instruction) \
  asm volatile("griddepcontrol." instruction ";" ::: "memory")
#else
#define DORAJIT_DEPENDENT_LAUNCH(instruction) static_cast<void>(0)
#endif

namespace dorajit::kernels {

// Called in the first stage: the second stage may be set up from now on.
__device__ __forceinline__ void let_second_stage_start() {
  DORAJIT_DEPENDENT_LAUNCH("launch_dependents");
}

// Called in the second stage: returns when the first stage has finished and its writes are visible.
// Earlier kernels have finished, too, because the first stage is an ordinary launch.
__device__ __forceinline__ void wait_for_first_stage() { DORAJIT_DEPENDENT_LAUNCH("wait"); }

}  // namespace dorajit::kernels
