#include "apps/daemon/background.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <format>
#include <string_view>
#include <utility>

#include "apps/cli/terminal/output.h"
#include "autotune/service/protocol/socket_path.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"

namespace dorajit::daemon {
namespace {

constexpr off_t kMaxBytes = off_t{1} << 20;
const std::string kName = autotune::protocol::kLogName;

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

int exit_code_of_child(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(cli::ExitCode::kFailed);
}

// Whether the byte came. Without it, the child has ended.
bool wait_for_byte(int pipe) {
  char byte = 0;
  ssize_t got = 0;
  while ((got = ::read(pipe, &byte, 1)) < 0 && errno == EINTR) {
  }
  return got == 1;
}

// Closes inherited descriptors: the daemon must not hold locks and pipes of its parent. `own` is
// moved behind the three streams, some of which may be closed.
FileDescriptor keep_only(FileDescriptor own) {
  constexpr int kFirst = STDERR_FILENO + 1;
  if (own.get() != kFirst && ::dup3(own.get(), kFirst, O_CLOEXEC) == kFirst)
    own = FileDescriptor(kFirst);
  ::closefrom(own.get() + 1);
  return own;
}

}  // namespace

void choose_log_format() {
  set_log_sink(is_stderr_the_journal()        ? write_with_priority
               : ::isatty(STDERR_FILENO) == 0 ? write_with_time
                                              : nullptr,
               nullptr);
}

Result<LogFile> LogFile::in(const std::string& tuning_dir, const cache::Trust& trust) {
  DORAJIT_ASSIGN(auto folder, cache::TrustedDirectory::make(tuning_dir, trust));
  return LogFile(std::move(folder));
}

void LogFile::attach() {
  struct stat info{};
  if (is_attached_ && (::fstat(STDERR_FILENO, &info) != 0 || info.st_size < kMaxBytes)) return;
  const int folder = folder_.descriptor();
  if (::fstatat(folder, kName.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      info.st_size >= kMaxBytes) {
    ::renameat(folder, kName.c_str(), folder, (kName + ".1").c_str());
  }
  // O_NONBLOCK: opening a FIFO must not wait for a reader.
  FileDescriptor file(::openat(folder, kName.c_str(),
                               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                               0600));
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    log(LogLevel::kWarning,
        std::format("{}/{} is not a file that can be written: messages are dropped; delete it and "
                    "start the daemon again",
                    folder_.path(), kName));
    file = FileDescriptor(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  }
  if (file) ::dup2(file.get(), STDERR_FILENO);
  is_attached_ = true;
  choose_log_format();
}

Result<Background> Background::enter() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return fail(StatusCode::kIoError, std::format("pipe2: {}", std::strerror(errno)));
  }
  FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return fail(StatusCode::kIoError, std::format("fork: {}", std::strerror(errno)));
  Background background;
  if (child == 0) {
    ::setsid();
    read_end.reset();
    background.parent_ = keep_only(std::move(write_end));
    return background;
  }
  write_end.reset();
  background.parent_exit_code_ = wait_for_byte(read_end.get()) ? 0 : exit_code_of_child(child);
  return background;
}

void Background::settle() {
  const FileDescriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO}) {
    if (nothing) ::dup2(nothing.get(), stream);
  }
  (void)!::chdir("/");
  (void)!::write(parent_.get(), "", 1);
  parent_.reset();
}

}  // namespace dorajit::daemon
