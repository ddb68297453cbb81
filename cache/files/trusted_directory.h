// Folders and files that only this user and root can have changed (docs/security.md).
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "cache/files/directories.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

// The users who may have written the files of this process, besides its own user and root.
struct Trust {
  bool group = false;                         // members of a folder's group (DORAJIT_TRUST_GROUP)
  std::optional<uid_t> owner{};               // one additional user
  FilePlace place = FilePlace::kCacheFolder;  // for messages
};

// An open folder that was checked through its descriptor. Its contents are accessed through that
// descriptor, so a folder that takes its name later is never accessed.
//
// A folder or file is accepted if it belongs to a trusted user and nobody else may write it. An
// access control list appears as the group's write permission and is treated alike.
class TrustedDirectory {
 public:
  using Found = Result<std::optional<TrustedDirectory>>;

  using Names = std::vector<std::string>;

  // The folder, or one below it after entering each of `below`. Nothing if it does not exist.
  // Follows symbolic links to `path` and checks their target.
  static Found open(const std::string& path, const Trust& trust, const Names& below = {});
  // The same, but creates the folders (0700) that are missing.
  static Result<TrustedDirectory> make(const std::string& path, const Trust& trust,
                                       const Names& below = {});

  // A folder in this one; does not follow symbolic links.
  [[nodiscard]] Found enter(const std::string& name) const;
  // Creates it if it is missing: for this user only, or for those who may write this folder.
  [[nodiscard]] Result<TrustedDirectory> make_and_enter(const std::string& name) const;
  // The mode of files that are created here.
  [[nodiscard]] mode_t file_mode() const;

  // The content of a file in this folder, or nothing if it does not exist. Empty if it is not a
  // regular file or has more than `max_bytes`: reading a FIFO may never end, and a file may be
  // larger than memory.
  [[nodiscard]] Result<std::optional<std::string>> read_file(const std::string& name,
                                                             off_t max_bytes) const;
  // The same check without reading the file. A missing file is accepted.
  [[nodiscard]] Status check_file(const std::string& name) const;

  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  // The path as it was named, for messages.
  [[nodiscard]] const std::string& path() const { return path_; }
  // A path to the open folder, valid as long as this object exists.
  [[nodiscard]] std::string held_path() const;
  [[nodiscard]] const struct stat& status() const { return status_; }

 private:
  TrustedDirectory(FileDescriptor descriptor, std::string path, const struct stat& status,
                   const Trust& trust)
      : descriptor_(std::move(descriptor)),
        path_(std::move(path)),
        status_(status),
        trust_(trust) {}

  // `parent` is null for the topmost folder.
  static Found open_at(const TrustedDirectory* parent, const std::string& name, const Trust& trust);
  [[nodiscard]] std::string path_of(const std::string& name) const { return path_ + "/" + name; }

  FileDescriptor descriptor_;
  std::string path_;
  struct stat status_;
  Trust trust_;
};

}  // namespace dorajit::cache
