// How compilers are run: as programs without a shell, or as work of this process within a time
// limit.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace dorajit::compile {

// Limit of one compilation. The slowest takes a few seconds.
inline constexpr std::chrono::seconds kCompileTimeLimit{60};

// How many abandoned threads run_within() allows in a process. A forked child starts at zero.
inline constexpr int kMaxAbandonedThreads = 4;

enum class Outcome {
  kDone,
  kTooLate,  // the work still runs and occupies one of the process's processors
  kRefused,  // kMaxAbandonedThreads threads are still busy with abandoned work
};

// Runs the work on a new thread, or on the calling thread if no thread can be created. Rethrows its
// exception. After the limit the thread is abandoned, so the work must own everything that it uses.
// This library then stays loaded, and exit() during the work ends the process with its status at
// once, without the destructors of the libraries that the work uses.
Outcome run_within(std::chrono::milliseconds limit, std::function<void()> work);

template <class T>
std::pair<Outcome, std::optional<T>> run_within(std::chrono::milliseconds limit,
                                                std::function<T()> work) {
  auto result = std::make_shared<std::optional<T>>();
  const Outcome outcome = run_within(
      limit, std::function<void()>([result, work = std::move(work)] { result->emplace(work()); }));
  // An abandoned thread writes its result later, so the result must not be read.
  if (outcome != Outcome::kDone) return {outcome, std::nullopt};
  return {outcome, std::move(*result)};
}

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
