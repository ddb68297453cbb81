// The configs of the built-in CPU kernels.
#pragma once

#include "kernel_templates/streaming_config.h"

namespace dorajit::kernels {

inline constexpr StreamingConfig kBuiltinElementwise{.block_size = 4096};
inline constexpr StreamingConfig kBuiltinColumnSums{.block_size = 4096, .rows_per_program = 256};
inline constexpr StreamingConfig kBuiltinRowSums{.block_size = 4096, .rows_per_program = 16};

}  // namespace dorajit::kernels
