// Runs another program without a shell.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace dorajit::compile {

struct ProcessResult {
  int exit_code = 0;   // 128 + signal when a signal ended it
  std::string output;  // standard output and standard error together
};

// PATH for child processes if this process has none.
inline constexpr const char* kStandardPath = "/usr/local/bin:/usr/bin:/bin";

// Runs argv[0], searched on PATH, without standard input. Kills it after `timeout`. kIoError if it
// could not be started or was killed. With the descriptor of a `folder`, the program runs there and
// uses it for temporary files; argv[0] must then be an absolute path.
Result<ProcessResult> run_process(const std::vector<std::string>& argv,
                                  std::chrono::milliseconds timeout, int folder = -1);

}  // namespace dorajit::compile
