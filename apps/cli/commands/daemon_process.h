// The process of dorajitd: how it is started, signalled and waited for.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cli {

// Runs dorajitd, from beside this program or else along PATH, until it has gone to the background
// or ended: its exit code. It inherits the standard streams.
Result<int> run_dorajitd(std::vector<std::string> arguments);

// A process of dorajitd. It stays the same one after its end, when another process may get its id.
class ProcessHandle {
 public:
  // kIoError for any other process: the id may come from a container.
  static Result<ProcessHandle> open(pid_t process);

  [[nodiscard]] Status signal(int number) const;
  // Whether it has ended by then. A negative limit is none.
  [[nodiscard]] bool wait(std::chrono::milliseconds limit) const;

 private:
  explicit ProcessHandle(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}

  FileDescriptor descriptor_;
};

}  // namespace dorajit::cli
