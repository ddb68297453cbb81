// Advisory locks between processes and threads. A killed holder's lock is released.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "cache/files/file_error.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

// Holds flock(2) on a file, which is kept for the next holder. The lock belongs to the open file,
// so it excludes threads and processes alike.
class FileLock {
 public:
  enum class Mode { kShared, kExclusive };

  // Nothing if others held the lock for the entire `wait`; an error if the file cannot be opened or
  // its file system has no locks. A new file gets these permissions.
  static Result<std::optional<FileLock>> acquire(const std::string& path, Mode mode,
                                                 std::chrono::milliseconds wait,
                                                 FilePlace place = FilePlace::kCacheFolder,
                                                 mode_t permissions = 0600);

  FileLock(FileLock&& other) noexcept = default;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

  // Of the locked file, which is open for writing too if the user may write it.
  [[nodiscard]] int descriptor() const { return file_.get(); }

 private:
  FileLock(FileDescriptor file, pid_t owner) : file_(std::move(file)), owner_(owner) {}

  FileDescriptor file_;
  pid_t owner_;
};

}  // namespace dorajit::cache
