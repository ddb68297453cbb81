// One dlopen handle.
#pragma once

#include <string>

#include "runtime/base/error.h"

namespace dorajit {

class DynamicLibrary {
 public:
  // `name` is a path, or a soname for the system's search. kIoError with dlerror() when it fails.
  static Result<DynamicLibrary> open(const std::string& name);

  // The library of this soname if this process has it already.
  static Result<DynamicLibrary> find_loaded(const std::string& soname);

  // Opens code that exists in memory only; `label` names it in debuggers.
  static Result<DynamicLibrary> open_memory(const std::string& code, const std::string& label);

  DynamicLibrary(DynamicLibrary&& other) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;
  ~DynamicLibrary();

  // Null when there is no such symbol.
  [[nodiscard]] void* symbol(const char* name) const;

  // The file that holds `symbol`, or empty.
  [[nodiscard]] static std::string file_of(const void* symbol);

  // Leaves the library in the process for good: for libraries that do not survive unloading.
  void keep_forever() { handle_ = nullptr; }

 private:
  explicit DynamicLibrary(void* handle) : handle_(handle) {}

  void* handle_ = nullptr;
};

}  // namespace dorajit
