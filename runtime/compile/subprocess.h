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

// What PATH is for programs that are looked for or run here where this process has none.
inline constexpr const char* kStandardPath = "/usr/local/bin:/usr/bin:/bin";

// Runs argv[0], found along PATH, with no standard input. Ends it after `timeout`. kIoError when it
// could not be started or did not end in time. With the descriptor of a `folder` it runs there and
// has it for its temporary files; argv[0] is then an absolute path.
Result<ProcessResult> run_process(const std::vector<std::string>& argv,
                                  std::chrono::milliseconds timeout, int folder = -1);

}  // namespace dorajit::compile
