#include "cache/files/directories.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <system_error>
#include <utility>

#include "runtime/base/files.h"
#include "runtime/base/hash.h"

namespace dorajit::cache {
namespace {

bool is_directory(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// NFS, SMB 1 to 3, AFS (two clients), Coda, 9P, GPFS, Lustre, Ceph and BeeGFS, by their statfs()
// numbers; no header has all of them. FUSE may be anything and counts as local.
constexpr unsigned kNetworkFileSystems[] = {0x6969,     0x517B,     0xFF534D42, 0xFE534D42,
                                            0x5346414F, 0x6B414653, 0x73757245, 0x01021997,
                                            0x47504653, 0x0BD00BD0, 0x00C36400, 0x19830326};

bool is_on_network(std::filesystem::path path) {
  struct statfs found{};
  // A missing folder will be created in its nearest existing parent.
  while (::statfs(path.c_str(), &found) != 0) {
    if (!path.has_parent_path() || path == path.parent_path()) return false;
    path = path.parent_path();
  }
  return std::ranges::contains(kNetworkFileSystems, static_cast<unsigned>(found.f_type));
}

bool will_do(const char* folder) {
  return folder != nullptr && *folder == '/' && is_writable_directory(folder) &&
         !is_on_network(folder);
}

// TMPDIR may belong to a job and be deleted with it, so it is only the second choice.
std::string folder_of_this_machine() {
  for (const char* folder : {"/var/tmp", static_cast<const char*>(std::getenv("TMPDIR"))}) {
    if (will_do(folder)) return folder;
  }
  return {};
}

}  // namespace

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
  const bool lacks_proc = error_number == ENOENT && path.starts_with(kHeldFolders) &&
                          !is_directory(std::string(kHeldFolders));
  return Error{StatusCode::kIoError,
               std::format("cannot {} {}: {}; {}", action, shown_path(path),
                           std::generic_category().message(error_number),
                           lacks_proc ? "mount /proc, through which open folders are reached"
                                      : remedy(error_number, place)),
               {}};
}

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

std::string live_directory(const std::string& cache_dir) {
  if (cache_dir.empty() || !is_on_network(cache_dir)) return cache_dir;
  if (std::error_code error;
      std::filesystem::exists(cache_dir, error) && !is_writable_directory(cache_dir)) {
    return cache_dir;
  }
  const std::string folder = folder_of_this_machine();
  if (folder.empty()) return {};
  return std::format("{}/dorajit-{}/{}", folder, ::geteuid(),
                     Hasher("live").add("cache", cache_dir).digest());
}

Status make_live_directory(const std::string& live_dir) {
  DORAJIT_TRY(make_own_directory(parent_directory(live_dir)));
  DORAJIT_TRY(make_own_directory(live_dir));
  return {};
}

}  // namespace dorajit::cache
