// The NVRTC of this machine, which needs no GPU.
#pragma once

#include <stdlib.h>

#include <memory>

#include "runtime/base/error.h"
#include "runtime/compile/nvrtc_compiler.h"

namespace dorajit::tests {

// An error where there is none; DORAJIT_NVRTC may name it.
inline Result<std::unique_ptr<compile::NvrtcCompiler>> nvrtc_here() {
  const char* hint = getenv("DORAJIT_NVRTC");
  auto compiler = std::make_unique<compile::NvrtcCompiler>(hint != nullptr ? hint : "", nullptr,
                                                           compile::kCompileTimeLimit, DORAJITD);
  DORAJIT_TRY(compiler->identity());
  return compiler;
}

}  // namespace dorajit::tests
