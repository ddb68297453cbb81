// A temporary folder of this process that nobody else can read, write or exchange.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit {

// Lies in TMPDIR, else in /tmp, and is removed with everything in it. Files in it are reached
// through the folder's descriptor, so it does not matter who may rename what lies in TMPDIR. It is
// locked (flock) for as long as it is there and its process lives.
class PrivateFolder {
 public:
  static Result<PrivateFolder> make();

  // Those that killed processes of this user left: nobody has them locked, and nobody has changed
  // them for an hour. The first make() of a process does it.
  static void remove_abandoned();

  PrivateFolder(PrivateFolder&& other) noexcept;
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder();

  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  // For people, and for who finds out whether it is still there.
  [[nodiscard]] const std::string& path() const { return path_; }

  // A new file; its name may have folders before it, which are made.
  [[nodiscard]] Status write(const std::string& name, std::string_view text) const;
  // What a file holds; empty where there is none.
  [[nodiscard]] std::string read(const std::string& name) const;

 private:
  PrivateFolder(std::string path, FileDescriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::string path_;  // empty: nothing to remove
  FileDescriptor descriptor_;
};

}  // namespace dorajit
