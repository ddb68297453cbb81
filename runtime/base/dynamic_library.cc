#include "runtime/base/dynamic_library.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <format>
#include <system_error>

#include "runtime/base/file_descriptor.h"

namespace dorajit {
namespace {

std::string last_error() {
  const char* message = dlerror();
  return message != nullptr ? message : "unknown dlopen error";
}

// A path to an open file that this process has not used before. dlopen() identifies a library by
// its path, and file descriptors are reused, so the plain /proc path could return the wrong
// library. The kernel ignores additional "/" and "/." before the number; they encode a counter in
// binary.
std::string fresh_path_to(int fd) {
  static std::atomic<std::uint64_t> counter{0};
  std::string path = "/proc/self/fd";
  for (std::uint64_t rest = counter.fetch_add(1); rest != 0; rest >>= 1) {
    path.append((rest & 1) != 0 ? "/." : "/");
  }
  return path.append("/").append(std::to_string(fd));
}

// Empty if the path is unknown.
std::filesystem::path this_code() {
  static const char anchor = 0;
  const std::string file = DynamicLibrary::file_of(&anchor);
  if (file.empty()) return {};
  std::error_code error;
  // For a program, it is argv[0]; a bare name was found through PATH.
  const std::filesystem::path real =
      std::filesystem::canonical(file.contains('/') ? file : "/proc/self/exe", error);
  return error ? std::filesystem::path() : real;
}

}  // namespace

Result<DynamicLibrary> DynamicLibrary::open(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return fail(StatusCode::kIoError, last_error());
  return DynamicLibrary(handle);
}

Result<DynamicLibrary> DynamicLibrary::find_loaded(const std::string& soname) {
  void* handle = dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) return fail(StatusCode::kIoError, soname + " is not loaded");
  return DynamicLibrary(handle);
}

Result<DynamicLibrary> DynamicLibrary::open_memory(const std::string& code,
                                                   const std::string& label) {
  const FileDescriptor file(memfd_create(label.c_str(), MFD_CLOEXEC));
  if (!file) {
    return fail(StatusCode::kIoError,
                std::format("memfd_create({}): {}", label, std::strerror(errno)));
  }
  if (!write_all(file, code)) {
    return fail(StatusCode::kOutOfMemory, std::format("writing {} bytes of code to memory: {}",
                                                      code.size(), std::strerror(errno)));
  }
  return open(fresh_path_to(file.get()));
}

void DynamicLibrary::Close::operator()(void* handle) const { dlclose(handle); }

void* DynamicLibrary::symbol(const char* name) const {
  return handle_ != nullptr ? dlsym(handle_.get(), name) : nullptr;
}

std::string DynamicLibrary::file_of(const void* symbol) {
  Dl_info info{};
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

std::string folder_of_this_code() { return this_code().parent_path().string(); }

std::string installed_file(std::string_view name) {
  const std::filesystem::path own = this_code().parent_path();
  if (own.empty()) return {};
  for (const char* up : {"..", "../..", "../../..", "../../../.."}) {
    std::error_code ignored;
    const auto file = (own / up / name).lexically_normal();
    if (std::filesystem::exists(file, ignored)) return file.string();
  }
  return {};
}

std::optional<uid_t> owner_of_this_code() {
  struct stat found{};
  if (::stat(this_code().c_str(), &found) != 0) return std::nullopt;
  return found.st_uid;
}

}  // namespace dorajit
