// The daemon in the background: its process and its log.
#pragma once

#include <optional>
#include <string>

#include "cache/files/trusted_directory.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::daemon {

// Log lines begin with their priority as "<N>" in systemd's journal, as usual on a terminal, and
// with the time in UTC elsewhere. Call again when standard error has become another file.
void choose_log_format();

// The log in the background: dorajitd.log beside the tuning database (protocol::kLogName). A file
// of a mebibyte is renamed to dorajitd.log.1, in place of an earlier one.
class LogFile {
 public:
  static Result<LogFile> in(const std::string& tuning_dir, const cache::Trust& trust);

  // Makes the file standard error, or /dev/null where it cannot be written. Call it regularly: it
  // begins a new file when this one has grown too large. A running worker still writes to the old
  // file until it ends.
  void attach();

 private:
  explicit LogFile(cache::TrustedDirectory folder) : folder_(std::move(folder)) {}

  cache::TrustedDirectory folder_;
  bool is_attached_ = false;
};

// A process that goes to the background and tells its parent whether it could start.
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
