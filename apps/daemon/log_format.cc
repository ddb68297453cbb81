#include "apps/daemon/log_format.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <format>
#include <string>
#include <string_view>

#include "runtime/base/log.h"

namespace dorajit::daemon {
namespace {

struct Label {
  int priority;  // as syslog counts them
  std::string_view name;
};

Label label_of(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return {3, "error"};
    case LogLevel::kWarning:
      return {4, "warning"};
    case LogLevel::kInfo:
      return {6, "info"};
    default:
      return {7, "debug"};
  }
}

void write(const std::string& line) { std::fwrite(line.data(), 1, line.size(), stderr); }

void write_with_priority(LogLevel level, std::string_view message, void*) {
  write(std::format("<{}>{}\n", label_of(level).priority, message));
}

void write_with_time(LogLevel level, std::string_view message, void*) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  write(std::format("{:%FT%TZ} dorajitd: {}: {}\n", now, label_of(level).name, message));
}

bool is_stderr_the_journal() {
  // Device and inode of the stream that systemd gave a service.
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat error_stream{};
  if (::fstat(STDERR_FILENO, &error_stream) != 0) return false;
  return stream != nullptr &&
         stream == std::format("{}:{}", error_stream.st_dev, error_stream.st_ino);
}

}  // namespace

void choose_log_format() {
  set_log_sink(is_stderr_the_journal()        ? write_with_priority
               : ::isatty(STDERR_FILENO) == 0 ? write_with_time
                                              : nullptr,
               nullptr);
}

}  // namespace dorajit::daemon
