// Exit codes. Scripts rely on these numbers (docs/cli.md); they never change.
#pragma once

#include <array>
#include <string_view>

#include "runtime/base/error.h"

namespace dorajit::cli {

enum class ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2, kUnavailable = 3 };

struct ExitCodeMeaning {
  int code;
  std::string_view meaning;
};

// All exit codes of the program.
inline constexpr std::array<ExitCodeMeaning, 5> kExitCodes = {{
    {static_cast<int>(ExitCode::kOk), "done"},
    {static_cast<int>(ExitCode::kFailed), "the operation was tried and failed"},
    {static_cast<int>(ExitCode::kUsage),
     "wrong usage: the command line, or the value of an environment variable"},
    {static_cast<int>(ExitCode::kUnavailable),
     "something that was asked for is not on this machine: NVIDIA driver, GPU, NVRTC, C++ "
     "compiler"},
    {130, "ended by Ctrl-C (SIGINT), as a shell reports it"},
}};

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
