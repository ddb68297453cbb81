// A temporary folder of this process that other users cannot read, write or replace.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit {

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
