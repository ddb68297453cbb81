// Files that appear under their name completely or not at all.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "cache/files/file_error.h"
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

}  // namespace dorajit::cache
