#include "cache/files/regular_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cache/files/file_error.h"

namespace dorajit::cache {

Result<std::string> read_regular_file(const FileDescriptor& file, const std::string& path,
                                      off_t max_bytes) {
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return std::unexpected(file_error("stat", path, errno));
  if (!S_ISREG(info.st_mode) || info.st_size > max_bytes) return std::string();

  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::unexpected(file_error("read", path, errno));
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace dorajit::cache
