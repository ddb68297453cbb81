// Files that processes share: they appear completely or not at all, and are locked. Output files
// that a user named are outside of the cache folder, and their folders may belong to others.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "cache/files/directories.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

// A file that is written under a temporary name beside its final name. Removed unless it is
// published. Not thread-safe; any number of processes may write the same path.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path,
                                   FilePlace place = FilePlace::kCacheFolder, mode_t mode = 0600);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // For writers that need a name; they must remove files that they create beside it.
  [[nodiscard]] const std::string& temporary_path() const { return temporary_path_; }

  [[nodiscard]] int descriptor() const { return file_.get(); }

  Status write(std::string_view bytes);

  // Makes the content durable and renames the file to its final name, replacing an existing file.
  Status publish_replacing();

  // The same, but keeps an existing file: then false, and the temporary file is removed.
  Result<bool> publish_if_absent();

 private:
  AtomicFile(std::string path, std::string temporary_path, FileDescriptor file, FilePlace place);

  Status finish_writing();

  std::string path_;
  std::string temporary_path_;  // empty: nothing to remove
  FileDescriptor file_;
  FilePlace place_;
};

// Removes temporary files that a killed process left in `directory` if they are an hour old: those
// of the file of that name, or with an empty name all.
void remove_stale_temporaries(const std::string& directory, std::string_view name = {});

// An advisory lock between processes and threads. A killed holder's lock is released.
//
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

// Atomically replaces the file at `path` with the bytes. Symbolic links are kept and their target
// is replaced, but links of other users than this one and root are refused. A replaced file of this
// user passes on its mode and group, one of another user at most its mode. If `path` is not a
// regular file, such as a pipe or a device, the bytes are written into it.
Status write_output_file(const std::string& path, std::string_view bytes);

// Opens the file at `path` under the same rules, without waiting if it is a pipe; creates it if it
// is missing.
Result<FileDescriptor> open_for_appending(const std::string& path);

}  // namespace dorajit::cache
