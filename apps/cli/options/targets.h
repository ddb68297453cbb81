// The targets that --arch names.
#pragma once

#include <string>

#include "runtime/base/error.h"
#include "runtime/compile/compiler.h"
#include "runtime/engine.h"

namespace dorajit::cli {

// kInvalidArgument for an architecture that never existed, whatever is installed.
Status check_arch(const std::string& arch);

// The target that a process on such a device asks artifacts for, which has no suffix: that of sm_90
// for "sm_90a", which a note says. kInvalidArgument for an architecture that never existed;
// kNoCompiler where there is no compiler or it does not support the architecture any more.
Result<compile::Target> make_target(Engine& engine, const std::string& arch);

// "native-cpu", "sm_90"
std::string arch_text(const compile::Target& target);

}  // namespace dorajit::cli
