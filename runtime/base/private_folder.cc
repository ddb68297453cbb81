#include "runtime/base/private_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <format>
#include <system_error>
#include <utility>

#include "runtime/base/user_ids.h"

namespace dorajit {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "dorajit-compile-";
constexpr std::time_t kAbandonedAfterSeconds = 3600;
constexpr std::size_t kMaxReadBytes = std::size_t{256} << 20;

std::string temporary_folder() {
  const char* base = std::getenv("TMPDIR");
  return base != nullptr && *base == '/' ? base : "/tmp";
}

FileDescriptor open_folder(int folder, const char* name) {
  return FileDescriptor(::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Whether only this user has ever had access to it.
bool is_private(int folder, struct stat& found) {
  return ::fstat(folder, &found) == 0 && is_this_user(found.st_uid) &&
         (found.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

void remove_contents(int folder) {
  std::error_code error;
  fs::directory_iterator entry(std::format("/proc/self/fd/{}", folder), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    fs::remove_all(entry->path(), ignored);
  }
}

void remove_if_abandoned(int base, const char* name) {
  const FileDescriptor folder = open_folder(base, name);
  struct stat found{};
  if (!folder || !is_private(folder.get(), found)) return;
  if (found.st_mtime + kAbandonedAfterSeconds >= std::time(nullptr)) return;
  if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) return;
  remove_contents(folder.get());
  ::unlinkat(base, name, AT_REMOVEDIR);
}

}  // namespace

void PrivateFolder::remove_abandoned() {
  const std::string base = temporary_folder();
  const FileDescriptor folder(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return;
  std::error_code error;
  fs::directory_iterator entry(std::format("/proc/self/fd/{}", folder.get()), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with(kPrefix)) remove_if_abandoned(folder.get(), name.c_str());
  }
}

Result<PrivateFolder> PrivateFolder::make() {
  const std::string base = temporary_folder();
  static std::atomic<bool> has_cleared{false};
  if (!has_cleared.exchange(true)) remove_abandoned();

  std::string path = std::format("{}/{}XXXXXX", base, kPrefix);
  if (::mkdtemp(path.data()) == nullptr) {
    return fail(StatusCode::kIoError,
                std::format("cannot make a folder like {}: {}; set TMPDIR to a writable folder",
                            path, std::strerror(errno)));
  }
  FileDescriptor folder = open_folder(AT_FDCWD, path.c_str());
  struct stat found{};
  // If locked, it belongs to a running process that reuses this name. On a file system without
  // locks nothing is removed.
  if (!folder || !is_private(folder.get(), found) ||
      (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)) {
    return fail(
        StatusCode::kIoError,
        std::format("folder {} was replaced by another user right after its creation, or this "
                    "user's id ({}) stands for all unmapped users of a user namespace; set "
                    "TMPDIR to a folder that only you can write, or run as another user",
                    path, ::geteuid()));
  }
  return PrivateFolder(std::move(path), std::move(folder));
}

PrivateFolder::PrivateFolder(PrivateFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), descriptor_(std::move(other.descriptor_)) {}

PrivateFolder::~PrivateFolder() {
  if (path_.empty()) return;
  remove_contents(descriptor_.get());
  ::rmdir(path_.c_str());
}

Status PrivateFolder::write(const std::string& name, std::string_view text) const {
  for (std::size_t slash = name.find('/'); slash != std::string::npos;
       slash = name.find('/', slash + 1)) {
    ::mkdirat(descriptor(), name.substr(0, slash).c_str(), 0700);
  }
  const std::string path = path_ + "/" + name;
  const FileDescriptor file(::openat(descriptor(), name.c_str(),
                                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file && write_all(file, text)) return {};
  return fail(StatusCode::kIoError,
              std::format("cannot write {}: {}; free some space there, or set TMPDIR to another "
                          "folder",
                          path, std::strerror(errno)));
}

std::string PrivateFolder::read(const std::string& name) const {
  const FileDescriptor file(
      ::openat(descriptor(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  std::string bytes;
  char buffer[65536];
  for (ssize_t count = 0; file;) {
    count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    bytes.append(buffer, static_cast<std::size_t>(count));
    if (bytes.size() > kMaxReadBytes) return {};
  }
  return bytes;
}

}  // namespace dorajit
