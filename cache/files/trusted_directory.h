// Folders and files that nobody but this user and root can have changed (docs/security.md).
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "cache/files/file_error.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

// Who may have written what a process is about to use, besides its own user and root.
struct Trust {
  bool group = false;  // members of the group that may write a folder (DORAJIT_TRUST_GROUP)
  std::optional<uid_t> owner{};               // one more user
  FilePlace place = FilePlace::kCacheFolder;  // for messages
};

// An open folder that was checked through its descriptor. What lies in it is reached through that
// descriptor, so a folder that takes its name later is never looked into.
//
// A folder or file passes if it belongs to a trusted user and nobody else may write it. An access
// control list shows as the group's right to write and is judged alike.
class TrustedDirectory {
 public:
  using Found = Result<std::optional<TrustedDirectory>>;

  // Nothing where there is none. Symbolic links are followed: what they lead to is checked.
  static Found open(const std::string& path, const Trust& trust);
  // The same, made first (0700) where it is missing.
  static Result<TrustedDirectory> make(const std::string& path, const Trust& trust);

  // A folder in this one, where no symbolic link is followed.
  [[nodiscard]] Found enter(const std::string& name) const;
  // Made first where it is missing: for this user alone, or for those who may write this folder.
  [[nodiscard]] Result<TrustedDirectory> make_and_enter(const std::string& name) const;
  // Of files that are made here.
  [[nodiscard]] mode_t file_mode() const;

  // A file in this folder, for reading; it need not be a regular one. Nothing where there is none.
  [[nodiscard]] Result<std::optional<FileDescriptor>> open_file(const std::string& name) const;
  // The same check without opening the file; one that is missing passes.
  [[nodiscard]] Status check_file(const std::string& name) const;

  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  // As it was named, for people.
  [[nodiscard]] const std::string& path() const { return path_; }
  // For calls that take a path: good as long as this object lives.
  [[nodiscard]] std::string held_path() const;
  [[nodiscard]] const struct stat& status() const { return status_; }

 private:
  TrustedDirectory(FileDescriptor descriptor, std::string path, const struct stat& status,
                   const Trust& trust)
      : descriptor_(std::move(descriptor)),
        path_(std::move(path)),
        status_(status),
        trust_(trust) {}

  // `parent` is null for the topmost.
  static Found open_at(const TrustedDirectory* parent, const std::string& name, const Trust& trust);
  [[nodiscard]] std::string path_of(const std::string& name) const { return path_ + "/" + name; }

  FileDescriptor descriptor_;
  std::string path_;
  struct stat status_;
  Trust trust_;
};

}  // namespace dorajit::cache
