// A process that goes to the background and tells its parent whether it could start.
#pragma once

#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::daemon {

class Background {
 public:
  // Forks; call it before there are threads or open files. The child goes on in a session of its
  // own, and of the inherited descriptors keeps only the first three. Its messages go to the
  // terminal until settle().
  static Result<Background> enter();

  // In the parent: its exit code, once the child has settled or ended. Nothing in the child.
  [[nodiscard]] std::optional<int> parent_exit_code() const { return parent_exit_code_; }

  // In the child: leaves the terminal, but for standard error, and tells the parent.
  void settle();

 private:
  FileDescriptor parent_;  // told by one byte
  std::optional<int> parent_exit_code_;
};

}  // namespace dorajit::daemon
