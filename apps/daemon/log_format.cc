#include "apps/daemon/log_format.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <format>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/log.h"

namespace dorajit::daemon {
namespace {

// As syslog counts them, by level.
constexpr int kPriorities[] = {7, 3, 4, 6, 7};

void write(const std::string& line) { std::fwrite(line.data(), 1, line.size(), stderr); }

void write_with_priority(LogLevel level, std::string_view message, void*) {
  write(std::format("<{}>{}\n", kPriorities[std::to_underlying(level)], message));
}

void write_with_time(LogLevel level, std::string_view message, void*) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  write(std::format("{:%FT%TZ} dorajitd: {}: {}\n", now, name(level), message));
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
