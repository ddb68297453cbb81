// The first compute capability on which the second stage of a sum waits for the first by itself, so
// that it may be launched before the first has finished. Kernels and launchers share this number.
#pragma once

// 90 means sm_90. This is a macro because earlier architectures lack the instruction.
#define DORAJIT_DEPENDENT_LAUNCH_ARCH 90
