#include "cache/files/directories.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <format>
#include <utility>

#include "runtime/base/user_ids.h"

namespace dorajit::cache {
namespace {

bool is_directory(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

Status make_private_directories(const std::string& path, FilePlace place) {
  if (is_directory(path)) return {};
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string prefix = path.substr(0, end);
    // mkdir() of an existing ancestor may fail with EROFS or EACCES, so the check for existence
    // follows the attempt and decides.
    if (::mkdir(prefix.c_str(), 0700) != 0) {
      const int error_number = errno == EEXIST ? ENOTDIR : errno;
      if (!is_directory(prefix)) {
        return std::unexpected(file_error("create folder", prefix, error_number, place));
      }
    }
    if (end == std::string::npos) return {};
  }
}

Result<std::optional<FileDescriptor>> open_own_directory(const std::string& path, FilePlace place) {
  FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder && errno == ENOENT) return std::nullopt;
  // These errors mean: not a folder, a link, or another user's folder. Others are not the folder's
  // fault.
  if (!folder && errno != ENOTDIR && errno != ELOOP && errno != EACCES) {
    return std::unexpected(file_error("open folder", path, errno, place));
  }
  struct stat info{};
  if (folder && ::fstat(folder.get(), &info) == 0 && is_this_user(info.st_uid) &&
      (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
    return folder;
  }
  return fail(StatusCode::kIoError,
              path + " is not a folder that only this user can write; remove it");
}

Result<FileDescriptor> make_own_directory(const std::string& path, FilePlace place) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return std::unexpected(file_error("create folder", path, errno, place));
  }
  DORAJIT_ASSIGN(auto found, open_own_directory(path, place));
  if (found) return *std::move(found);
  return std::unexpected(file_error("open folder", path, ENOENT, place));
}

std::string held_path(const FileDescriptor& folder) {
  return std::format("{}{}", kHeldFolders, folder.get());
}

bool is_writable_directory(const std::string& path) {
  return ::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
}

Status sync_directory(const std::string& path, FilePlace place) {
  const FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return std::unexpected(file_error("open folder", path, errno, place));
  // Some file systems cannot sync folders and return EINVAL.
  if (::fsync(directory.get()) != 0 && errno != EINVAL) {
    return std::unexpected(file_error("sync folder", path, errno, place));
  }
  return {};
}

std::string parent_directory(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace dorajit::cache
