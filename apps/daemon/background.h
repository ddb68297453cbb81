// A process that goes on by itself after whoever started it has its answer.
#pragma once

#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::daemon {

class Background {
 public:
  // Forks; call it before there are threads or open files. The child goes on in a session of its
  // own, without the descriptors that were inherited but for the first three; what it has to say
  // goes to the terminal until settle().
  static Result<Background> enter();

  // In the parent: how to end, as soon as the child has settled or ended. Nothing in the child.
  [[nodiscard]] std::optional<int> parent_exit_code() const { return parent_exit_code_; }

  // In the child: leaves the terminal alone and tells the parent. Messages go to the journal where
  // there is one, else to the end of dorajitd.log in that open folder, which nobody else may write.
  void settle(int folder);

 private:
  FileDescriptor told_;
  std::optional<int> parent_exit_code_;
};

}  // namespace dorajit::daemon
