#include "cache/files/file_error.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <format>
#include <system_error>

namespace dorajit::cache {

std::string choice_of(FilePlace place, std::string_view folder) {
  switch (place) {
    case FilePlace::kDatabases:
      return std::format("set DORAJIT_DATABASES to {}", folder);
    case FilePlace::kDaemonFolder:
      return std::format("set DORAJIT_DAEMON_DIR to {}", folder);
    case FilePlace::kNamed:
      return std::format("name a file in {}", folder);
    case FilePlace::kCacheFolder:
      break;
  }
  return std::format("set DORAJIT_CACHE_DIR to {}", folder);
}

std::string shown_path(std::string_view path) {
  if (!path.starts_with(kHeldFolders)) return std::string(path);
  const std::size_t end = std::min(path.find('/', kHeldFolders.size()), path.size());
  std::error_code error;
  const auto folder = std::filesystem::read_symlink(path.substr(0, end), error);
  return error ? std::string(path) : folder.native() + std::string(path.substr(end));
}

std::string remedy(int error_number, FilePlace place) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "free space there or " + choice_of(place, "a folder with room");
    case EFBIG:
      return "raise the file size limit (ulimit -f)";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EROFS:
    case EACCES:
    case EPERM:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENOENT:
    case EEXIST:
      return choice_of(place, "a writable folder");
    default:
      return "check that file system or " + choice_of(place, "a folder on another one");
  }
}

Error file_error(std::string_view action, std::string_view path, int error_number,
                 FilePlace place) {
  return Error{
      StatusCode::kIoError,
      std::format("cannot {} {}: {}; {}", action, shown_path(path),
                  std::generic_category().message(error_number), remedy(error_number, place)),
      {}};
}

}  // namespace dorajit::cache
