// Runs another program without a shell.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace dorajit::compile {

struct ProcessResult {
  int exit_code = 0;   // 128 + signal when a signal ended it
  std::string output;  // standard output and standard error together, the first kMaxOutputBytes
};

inline constexpr std::size_t kMaxOutputBytes = std::size_t{1} << 20;
// Of each file that a program writes. Compilations stay far below it.
inline constexpr std::uint64_t kMaxWrittenBytes = std::uint64_t{256} << 20;

// PATH for child processes if this process has none.
inline constexpr const char* kStandardPath = "/usr/local/bin:/usr/bin:/bin";

// Runs argv[0], searched on PATH, without standard input, in a process group of its own. Returns
// when it ends, even if processes that it started hold its output open. After `timeout` the whole
// group is killed. kIoError if it could not be started or was killed. With the descriptor of a
// `folder`, the program runs there and uses it for temporary files; argv[0] must then be an
// absolute path.
Result<ProcessResult> run_process(const std::vector<std::string>& argv,
                                  std::chrono::milliseconds timeout, int folder = -1);

}  // namespace dorajit::compile
