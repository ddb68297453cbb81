// The log of the daemon.
#pragma once

#include <string>

#include "cache/files/trusted_directory.h"
#include "runtime/base/error.h"

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

}  // namespace dorajit::daemon
