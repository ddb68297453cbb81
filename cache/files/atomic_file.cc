#include "cache/files/atomic_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cache/files/directories.h"

namespace dorajit::cache {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp.";
constexpr std::time_t kStaleAfterSeconds = 3600;

}  // namespace

AtomicFile::AtomicFile(std::string path, std::string temporary_path, FileDescriptor file,
                       FilePlace place)
    : path_(std::move(path)),
      temporary_path_(std::move(temporary_path)),
      file_(std::move(file)),
      place_(place) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::exchange(other.temporary_path_, {})),
      file_(std::move(other.file_)),
      place_(other.place_) {}

AtomicFile::~AtomicFile() {
  if (!temporary_path_.empty()) ::unlink(temporary_path_.c_str());
}

Result<AtomicFile> AtomicFile::create(const std::string& path, FilePlace place, mode_t mode) {
  std::string temporary = path;
  temporary.append(kTemporaryMark).append("XXXXXX");
  FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file) return std::unexpected(file_error("create", path, errno, place));
  if (mode != 0600) ::fchmod(file.get(), mode);
  return AtomicFile(path, std::move(temporary), std::move(file), place);
}

Status AtomicFile::write(std::string_view bytes) {
  if (write_all(file_, bytes)) return {};
  return std::unexpected(file_error("write", path_, errno, place_));
}

// The descriptor must be closed before the file gets its final name: closing any descriptor of a
// live database releases the locks that SQLite holds on it in this process.
Status AtomicFile::finish_writing() {
  if (::fsync(file_.get()) != 0) return std::unexpected(file_error("sync", path_, errno, place_));
  if (file_.reset() != 0) return std::unexpected(file_error("close", path_, errno, place_));
  return {};
}

Status AtomicFile::publish_replacing() {
  DORAJIT_TRY(finish_writing());
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return std::unexpected(file_error("publish", path_, errno, place_));
  }
  temporary_path_.clear();
  return sync_directory(parent_directory(path_), place_);
}

Result<bool> AtomicFile::publish_if_absent() {
  DORAJIT_TRY(finish_writing());
  const char* const temporary = temporary_path_.c_str();
  if (::link(temporary, path_.c_str()) == 0) {
    ::unlink(temporary);
  } else if (errno == EEXIST) {
    return false;
  } else if (::renameat2(AT_FDCWD, temporary, AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    // For file systems without hard links.
    if (errno == EEXIST) return false;
    return std::unexpected(file_error("publish", path_, errno, place_));
  }
  temporary_path_.clear();
  DORAJIT_TRY(sync_directory(parent_directory(path_), place_));
  return true;
}

void remove_stale_temporaries(const std::string& directory, std::string_view name) {
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string& path = entry->path().native();
    const std::string file = entry->path().filename();
    const std::size_t mark = file.find(kTemporaryMark);
    if (mark == file.npos || (!name.empty() && file.substr(0, mark) != name)) continue;
    struct stat info{};
    if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        info.st_mtime + kStaleAfterSeconds < std::time(nullptr)) {
      ::unlink(path.c_str());
    }
  }
}

}  // namespace dorajit::cache
