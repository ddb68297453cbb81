#include "runtime/base/own_location.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "runtime/base/dynamic_library.h"

namespace dorajit {
namespace {

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
