#include "apps/daemon/journal.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <format>
#include <string>

#include "runtime/base/log.h"

namespace dorajit::daemon {
namespace {

constexpr const char* kStream = "/run/systemd/journal/stdout";

// As syslog counts them.
int priority(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return 3;
    case LogLevel::kWarning:
      return 4;
    case LogLevel::kInfo:
      return 6;
    default:
      return 7;
  }
}

void write_with_priority(LogLevel level, std::string_view message, void*) {
  const std::string line = std::format("<{}>{}\n", priority(level), message);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

FileDescriptor open_journal(std::string_view identifier) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, kStream, sizeof address.sun_path - 1);
  FileDescriptor stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!stream ||
      ::connect(stream.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return {};
  }
  // Identifier, unit, priority of lines that name none, whether lines may name one, and whether to
  // forward to syslog, the kernel's log and the console.
  const std::string header = std::format("{}\n\n6\n1\n0\n0\n0\n", identifier);
  const ssize_t sent = ::send(stream.get(), header.data(), header.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(header.size())) return {};
  return stream;
}

bool is_stderr_the_journal() {
  // Device and inode of the stream that systemd gave a service.
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat error_stream{};
  if (::fstat(STDERR_FILENO, &error_stream) != 0) return false;
  return stream != nullptr &&
         stream == std::format("{}:{}", error_stream.st_dev, error_stream.st_ino);
}

void mark_priorities() { set_log_sink(write_with_priority, nullptr); }

}  // namespace dorajit::daemon
