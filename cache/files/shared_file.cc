#include "cache/files/shared_file.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <format>
#include <system_error>
#include <thread>
#include <utility>

#include "cache/files/directories.h"
#include "runtime/base/files.h"

namespace dorajit::cache {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp.";
constexpr std::time_t kStaleAfterSeconds = 3600;

constexpr int kMaxLinks = 40;

struct Place {
  FileDescriptor folder;
  std::string name;
  FileDescriptor file;  // without access to its content; none if the file does not exist
  struct stat found{};  // of the file
};

// Opens without access to the content, but never a link's target.
FileDescriptor look_up(Place& place, int follow) {
  FileDescriptor found(
      ::openat(place.folder.get(), place.name.c_str(), O_PATH | O_CLOEXEC | follow));
  if (found && ::fstat(found.get(), &place.found) != 0) found.reset();
  return found;
}

bool is_on_proc(const FileDescriptor& file) {
  struct statfs system{};
  return ::fstatfs(file.get(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

std::string target_of(const FileDescriptor& link) {
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(link.get(), "", target.data(), target.size());
  target.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return target;
}

// Links of other users, and pipes that they put in the place of a file, are refused. In a user
// namespace the links of root that lead to the user's own folders may have an ambiguous owner.
Status check_owner(const Place& place, bool is_last) {
  const uid_t owner = place.found.st_uid;
  const bool is_link = S_ISLNK(place.found.st_mode);
  if ((!is_link && !S_ISFIFO(place.found.st_mode)) || is_this_user_or_root(owner)) return {};
  if (!is_last && is_ambiguous_user(owner)) return {};
  return fail(
      StatusCode::kIoError,
      std::format("{}/{} is a {} of user {}, who chooses what is written by it; name a file "
                  "that it does not lead to",
                  shown_path(held_path(place.folder)), place.name,
                  is_link ? "symbolic link" : "pipe", owner));
}

// Opens the folder of the file to which `named` leads, one component of the path after the other.
Result<Place> find_place(const std::string& named) {
  const auto failure = [&](int error_number) {
    return std::unexpected(file_error("write", named, error_number, FilePlace::kNamed));
  };
  const auto open_start = [](const std::string& path) {
    return FileDescriptor(::open(path.starts_with('/') ? "/" : ".", O_PATH | O_CLOEXEC));
  };
  // O_PATH does not mount what is mounted on demand; walking through it does.
  (void)::access(named.c_str(), F_OK);
  Place place;
  place.folder = open_start(named);
  std::string rest = named;
  for (int links = 0; place.folder;) {
    rest.erase(0, rest.find_first_not_of('/'));
    if (rest.empty()) return failure(named.empty() ? ENOENT : EISDIR);
    const std::size_t end = std::min(rest.find('/'), rest.size());
    place.name = rest.substr(0, end);
    rest.erase(0, end);
    FileDescriptor entry = look_up(place, O_NOFOLLOW);
    if (!entry && (errno != ENOENT || !rest.empty())) return failure(errno);
    if (!entry) return place;
    DORAJIT_TRY(check_owner(place, rest.empty()));
    if (S_ISLNK(place.found.st_mode)) {
      if (++links > kMaxLinks) return failure(ELOOP);
      const std::string target = target_of(entry);
      // The kernel follows its own links under /proc, which need not lead to a path.
      if (is_on_proc(entry)) entry = look_up(place, 0);
      if (!entry) return failure(errno);
      if (S_ISLNK(place.found.st_mode) || S_ISREG(place.found.st_mode)) {
        rest.insert(0, target);
        if (target.starts_with('/')) place.folder = open_start(target);
        continue;
      }
    }
    if (rest.empty()) {
      place.file = std::move(entry);
      return place;
    }
    place.folder = std::move(entry);
  }
  return failure(errno);
}

// What any new file gets, or what the replaced file had. One of another user may have been put
// there to widen the access.
void give_mode(int file, const struct stat* replaced) {
  // The umask cannot be read without setting it.
  const mode_t mask = ::umask(077);
  ::umask(mask);
  mode_t mode = 0666 & ~mask;
  if (replaced != nullptr && is_this_user(replaced->st_uid)) {
    mode = replaced->st_mode & 0777;
    if (::fchown(file, static_cast<uid_t>(-1), replaced->st_gid) != 0) mode &= ~S_IRWXG;
  } else if (replaced != nullptr) {
    mode &= replaced->st_mode;
  }
  ::fchmod(file, mode);
}

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

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Result<std::optional<FileLock>> FileLock::acquire(const std::string& path, Mode mode,
                                                  milliseconds wait, FilePlace place,
                                                  mode_t permissions) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0600));
  if (file && permissions != 0600)
    ::fchmod(file.get(), permissions);  // fails for another user's file
  if (!file) {
    const int error_number = errno;
    // Another user's file, or a read-only folder: flock() does not need write access.
    file = FileDescriptor(::open(path.c_str(), O_RDONLY | kFlags));
    if (!file) return std::unexpected(file_error("open", path, error_number, place));
  }
  const int operation = (mode == Mode::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  const auto deadline = steady_clock::now() + wait;
  for (milliseconds pause(1);; pause = std::min(2 * pause, milliseconds(20))) {
    if (::flock(file.get(), operation) == 0) return FileLock(std::move(file), ::getpid());
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return std::unexpected(file_error("lock", path, errno, place));
    }
    const auto now = steady_clock::now();
    if (now >= deadline) return std::nullopt;
    std::this_thread::sleep_for(std::min<steady_clock::duration>(pause, deadline - now));
  }
}

FileLock::~FileLock() {
  // A child forked meanwhile shares the open file, so closing it would not unlock it; and a child
  // that closes its copy must not unlock it for the parent.
  if (file_ && owner_ == ::getpid()) ::flock(file_.get(), LOCK_UN);
}

Status write_output_file(const std::string& path, std::string_view bytes) {
  DORAJIT_ASSIGN(const Place place, find_place(path));
  if (place.file && !S_ISREG(place.found.st_mode)) {
    FileDescriptor file(::open(held_path(place.file).c_str(), O_WRONLY | O_CLOEXEC));
    if (file && write_all(file, bytes) && file.reset() == 0) return {};
    return std::unexpected(file_error("write", path, errno, FilePlace::kNamed));
  }
  const std::string folder = held_path(place.folder);
  remove_stale_temporaries(folder, place.name);
  DORAJIT_ASSIGN(AtomicFile file, AtomicFile::create(folder + "/" + place.name, FilePlace::kNamed));
  DORAJIT_TRY(file.write(bytes));
  give_mode(file.descriptor(), place.file ? &place.found : nullptr);
  return file.publish_replacing();
}

Result<FileDescriptor> open_for_appending(const std::string& path) {
  DORAJIT_ASSIGN(const Place place, find_place(path));
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  FileDescriptor file(::openat(place.folder.get(), place.name.c_str(), kFlags, 0644));
  if (file) return file;
  return std::unexpected(file_error("open", path, errno, FilePlace::kNamed));
}

}  // namespace dorajit::cache
