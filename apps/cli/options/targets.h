// What --arch names.
#pragma once

#include <string>

#include "runtime/base/error.h"
#include "runtime/compile/compiler.h"
#include "runtime/engine.h"

namespace dorajit::cli {

// kInvalidArgument for what is, and was, no architecture, whatever is installed.
Status check_arch(const std::string& arch);

// The target of `arch` as it stands. kInvalidArgument for what is no architecture; kNoCompiler
// where there is no compiler or it makes nothing at all for that architecture.
Result<compile::Target> make_target(Engine& engine, const std::string& arch);

// The target that a process on such a device asks artifacts for, which has no suffix: that of sm_90
// for "sm_90a". kInvalidArgument also for what NVRTC does not know.
Result<compile::Target> make_device_target(Engine& engine, const std::string& arch);

bool is_same(const compile::Target& a, const compile::Target& b);

// "native-cpu", "sm_90"
std::string arch_text(const compile::Target& target);

}  // namespace dorajit::cli
