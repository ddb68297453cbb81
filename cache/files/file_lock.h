// Advisory locks that processes and threads respect alike, and that a killed holder releases.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "cache/files/file_error.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

// Holds flock(2) on a file, which stays in its folder for the next holder. The lock belongs to the
// open file, so two threads exclude each other as two processes do.
class FileLock {
 public:
  enum class Mode { kShared, kExclusive };

  // Nothing when others held the lock for all of `wait`; an error when the file cannot be opened
  // or its file system has no locks. A file that is made has these permissions.
  static Result<std::optional<FileLock>> acquire(const std::string& path, Mode mode,
                                                 std::chrono::milliseconds wait,
                                                 FilePlace place = FilePlace::kCacheFolder,
                                                 mode_t permissions = 0600);

  FileLock(FileLock&& other) noexcept = default;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock() { release(); }

 private:
  FileLock(FileDescriptor file, pid_t owner) : file_(std::move(file)), owner_(owner) {}
  void release();

  FileDescriptor file_;
  pid_t owner_;
};

}  // namespace dorajit::cache
