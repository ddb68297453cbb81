// What the exit codes mean, for the help, the manual pages and docs/cli.md.
#pragma once

#include <array>
#include <string_view>

#include "bindings/cli/exit_code.h"

namespace dorajit::cli {

struct ExitCodeMeaning {
  int code;
  std::string_view meaning;
};

// All that a caller of the program may see.
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

}  // namespace dorajit::cli
