// Who owns files, and files and folders outside of the cache: those that a user names, and
// temporary ones.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <expected>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit {

// Whether the id may stand for users, or groups, that the namespace of this process does not map:
// in a user namespace that does not map every id, files and processes of all unmapped users show
// the overflow id, usually 65534. A process that is `nobody` has the same id.
bool is_ambiguous_user(uid_t user);
bool is_ambiguous_group(gid_t group);

// Whether the id is certainly that of this process's effective user.
bool is_this_user(uid_t user);
bool is_this_user_or_root(uid_t user);

// The bytes, or why they cannot be read: "it is not a regular file". Links are followed. Devices,
// FIFOs and sockets are refused without being waited for, since reading them may block or never
// end; so are files of more than `max_bytes`, also those whose size is not known before.
std::expected<std::string, std::string> read_regular_file(const std::string& path,
                                                          std::size_t max_bytes);

// At most the first `max_bytes` of such a file.
std::expected<std::string, std::string> read_file_start(const std::string& path,
                                                        std::size_t max_bytes);

// A temporary folder of this process that other users cannot read, write or replace.
//
// Created in TMPDIR, else in /tmp, and removed with its contents. Files are accessed through the
// folder's descriptor, so renaming it in TMPDIR has no effect. Locked (flock) while it exists and
// its process runs.
class PrivateFolder {
 public:
  static Result<PrivateFolder> make();

  // Removes the folders that killed processes of this user left: those that are unlocked and
  // unchanged for an hour. The first make() of a process calls it.
  static void remove_abandoned();

  PrivateFolder(PrivateFolder&& other) noexcept;
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder();

  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  // For messages, and for checking whether the folder still exists.
  [[nodiscard]] const std::string& path() const { return path_; }

  // Creates a file; `name` may contain folders, which are created.
  [[nodiscard]] Status write(const std::string& name, std::string_view text) const;
  // The content of a file; empty if there is none, or if it has more than 256 MiB.
  [[nodiscard]] std::string read(const std::string& name) const;

 private:
  PrivateFolder(std::string path, FileDescriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::string path_;  // empty: nothing to remove
  FileDescriptor descriptor_;
};

}  // namespace dorajit
