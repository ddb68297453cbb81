#include "cache/file_error.h"

#include <cerrno>
#include <format>
#include <system_error>

namespace dorajit::cache {

std::string_view remedy(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "free space there or set DORAJIT_CACHE_DIR to a folder with room";
    case EFBIG:
      return "raise the file size limit (ulimit -f)";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EROFS:
    case EACCES:
    case EPERM:
    case ENOTDIR:
    case ENOENT:
    case EEXIST:
      return "set DORAJIT_CACHE_DIR to a writable folder";
    default:
      return "check that file system or set DORAJIT_CACHE_DIR to another one";
  }
}

Error file_error(std::string_view action, std::string_view path, int error_number) {
  return Error{StatusCode::kIoError,
               std::format("cannot {} {}: {}; {}", action, path,
                           std::generic_category().message(error_number), remedy(error_number)),
               {}};
}

}  // namespace dorajit::cache
