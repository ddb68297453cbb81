
#include "runtime/base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <format>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "runtime/base/file_descriptor.h"

namespace dorajit {
namespace {

std::uint32_t overflow_id(const char* setting) {
  std::uint32_t id = 0;
  return std::ifstream(setting) >> id ? id : 65534;
}

// False where that is unknown. Read anew each time, because unshare(2) changes it.
bool maps_every_id(const char* map) {
  std::ifstream lines(map);
  std::uint64_t mapped = 0;
  for (std::uint64_t inside = 0, outside = 0, count = 0; lines >> inside >> outside >> count;) {
    mapped += count;
  }
  return mapped >= std::numeric_limits<std::uint32_t>::max();  // -1 is not an id
}

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

bool is_ambiguous_user(uid_t user) {
  static const std::uint32_t overflow = overflow_id("/proc/sys/kernel/overflowuid");
  return user == overflow && !maps_every_id("/proc/self/uid_map");
}

bool is_ambiguous_group(gid_t group) {
  static const std::uint32_t overflow = overflow_id("/proc/sys/kernel/overflowgid");
  return group == overflow && !maps_every_id("/proc/self/gid_map");
}

bool is_this_user(uid_t user) { return user == ::geteuid() && !is_ambiguous_user(user); }

bool is_this_user_or_root(uid_t user) {
  return (user == ::geteuid() || user == 0) && !is_ambiguous_user(user);
}

std::expected<std::string, std::string> read_file_start(const std::string& path,
                                                        std::size_t max_bytes) {
  const auto failure = [](int error) {
    return std::unexpected(std::generic_category().message(error));
  };
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat found{};
  // Opening a socket is ENXIO.
  if ((!file && errno != ENXIO) || (file && ::fstat(file.get(), &found) != 0))
    return failure(errno);
  if (S_ISDIR(found.st_mode)) return failure(EISDIR);
  if (!S_ISREG(found.st_mode)) return std::unexpected("it is not a regular file");
  std::string bytes;
  constexpr std::size_t kChunkBytes = std::size_t{1} << 16;
  while (bytes.size() < max_bytes) {
    const std::size_t filled = bytes.size();
    bytes.resize(std::min(filled + kChunkBytes, max_bytes));
    ssize_t count = 0;
    while ((count = ::read(file.get(), bytes.data() + filled, bytes.size() - filled)) < 0 &&
           errno == EINTR) {
    }
    if (count < 0) return failure(errno);
    bytes.resize(filled + static_cast<std::size_t>(count));
    if (count == 0) break;
  }
  return bytes;
}

std::expected<std::string, std::string> read_regular_file(const std::string& path,
                                                          std::size_t max_bytes) {
  auto bytes = read_file_start(path, max_bytes + 1);
  if (bytes && bytes->size() > max_bytes) {
    return std::unexpected(std::format("it is larger than {} bytes", max_bytes));
  }
  return bytes;
}

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
