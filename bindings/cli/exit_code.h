// How a command ends. Scripts rely on these numbers (docs/cli.md); they never change.
#pragma once

#include "runtime/base/error.h"

namespace dorajit::cli {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,       // the operation was tried and failed
  kUsage = 2,        // the command line or an environment variable is wrong
  kUnavailable = 3,  // what was asked for is not on this machine: driver, device, compiler
};

constexpr ExitCode exit_code_of(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
      return ExitCode::kUsage;
    case StatusCode::kNoDriver:
    case StatusCode::kNoCompiler:
      return ExitCode::kUnavailable;
    default:
      return ExitCode::kFailed;
  }
}

}  // namespace dorajit::cli
