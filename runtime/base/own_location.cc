#include "runtime/base/own_location.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <filesystem>
#include <string_view>
#include <system_error>

namespace dorajit {
namespace {

// Empty if the path is unknown.
std::filesystem::path this_code() {
  static const char anchor = 0;
  Dl_info found{};
  if (dladdr(&anchor, &found) == 0 || found.dli_fname == nullptr) return {};
  std::error_code error;
  // For a program, dladdr() returns argv[0]; a bare name was found through PATH.
  const std::string_view file(found.dli_fname);
  const std::filesystem::path real =
      std::filesystem::canonical(file.contains('/') ? file : "/proc/self/exe", error);
  return error ? std::filesystem::path() : real;
}

}  // namespace

std::string folder_of_this_code() { return this_code().parent_path().string(); }

std::optional<uid_t> owner_of_this_code() {
  struct stat found{};
  if (::stat(this_code().c_str(), &found) != 0) return std::nullopt;
  return found.st_uid;
}

}  // namespace dorajit
