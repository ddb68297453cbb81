// The configs of the CPU kernels that the library holds.
#pragma once

#include "kernel_templates/config.h"

namespace dorajit::kernels {

inline constexpr Config kBuiltinElementwise{.block_size = 4096};
inline constexpr Config kBuiltinColumnSums{.block_size = 4096, .rows_per_program = 256};
inline constexpr Config kBuiltinRowSums{.block_size = 4096, .rows_per_program = 16};

}  // namespace dorajit::kernels
