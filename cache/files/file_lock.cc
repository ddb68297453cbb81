#include "cache/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

namespace dorajit::cache {

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

}  // namespace dorajit::cache
