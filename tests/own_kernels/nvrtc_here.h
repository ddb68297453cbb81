// The NVRTC of this machine, which needs no GPU.
#pragma once

#include <memory>

#include "runtime/base/error.h"
#include "runtime/compile/nvrtc_compiler.h"

namespace dorajit::tests {

// An error where there is none; DORAJIT_NVRTC may name it.
Result<std::unique_ptr<compile::NvrtcCompiler>> nvrtc_here();

}  // namespace dorajit::tests
