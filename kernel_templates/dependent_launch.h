// From which compute capability on the second stage of a sum waits for the first by itself, so that
// it may be launched before that has finished. The kernels and those who launch them read the same
// number.
#pragma once

// 90 for sm_90. A macro, because the instruction exists for no architecture before it.
#define DORAJIT_DEPENDENT_LAUNCH_ARCH 90
