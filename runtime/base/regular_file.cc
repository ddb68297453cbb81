#include "runtime/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <format>
#include <system_error>

#include "runtime/base/file_descriptor.h"

namespace dorajit {

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

}  // namespace dorajit
