#include "tests/own_kernels/nvrtc_here.h"

#include <stdlib.h>

namespace dorajit::tests {

Result<std::unique_ptr<compile::NvrtcCompiler>> nvrtc_here() {
  const char* hint = getenv("DORAJIT_NVRTC");
  auto compiler = std::make_unique<compile::NvrtcCompiler>(hint != nullptr ? hint : "", nullptr,
                                                           compile::kCompileTimeLimit, DORAJITD);
  DORAJIT_TRY(compiler->identity());
  return compiler;
}

}  // namespace dorajit::tests
