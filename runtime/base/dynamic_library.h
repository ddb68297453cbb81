// Owner of one dlopen handle.
#pragma once

#include <memory>
#include <string>

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

}  // namespace dorajit
