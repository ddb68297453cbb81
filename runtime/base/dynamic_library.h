// Owner of one dlopen handle, and where the program or shared library that holds this code was
// loaded from.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace dorajit {

class DynamicLibrary {
 public:
  // `name` is a path, or a soname that the dynamic linker searches for. On failure kIoError with
  // dlerror().
  static Result<DynamicLibrary> open(const std::string& name);

  // The library of this soname if it is already loaded in this process.
  static Result<DynamicLibrary> find_loaded(const std::string& soname);

  // Loads code from memory; `label` is its name in debuggers.
  static Result<DynamicLibrary> open_memory(const std::string& code, const std::string& label);

  // Null if there is no such symbol.
  [[nodiscard]] void* symbol(const char* name) const;

  // The file that holds `symbol`, or empty.
  [[nodiscard]] static std::string file_of(const void* symbol);

  // Never unloads the library. For libraries that cannot be unloaded safely.
  void keep_forever() { static_cast<void>(handle_.release()); }

 private:
  struct Close {
    void operator()(void* handle) const;
  };
  explicit DynamicLibrary(void* handle) : handle_(handle) {}

  std::unique_ptr<void, Close> handle_;
};

// Its folder as an absolute path; empty if unknown.
std::string folder_of_this_code();

// A file or folder in the prefix that this code is installed in: a folder that contains its folder,
// up to four levels above. Empty if there is none.
std::string installed_file(std::string_view name);

// The owner of that file, whose code this process runs; nothing if unknown.
std::optional<uid_t> owner_of_this_code();

}  // namespace dorajit
