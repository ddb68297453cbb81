#include "apps/daemon/background.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <format>
#include <utility>

#include "apps/cli/terminal/exit_code.h"
#include "apps/daemon/journal.h"

namespace dorajit::daemon {
namespace {

int exit_code_of_child(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(cli::ExitCode::kFailed);
}

// Whether the byte came. Its absence means that the child has ended.
bool wait_for_byte(int pipe) {
  char byte = 0;
  ssize_t got = 0;
  while ((got = ::read(pipe, &byte, 1)) < 0 && errno == EINTR) {
  }
  return got == 1;
}

// Locks and pipes of whoever started this process are not held for as long as it lives. What is
// kept comes after the three streams, of which some may be closed.
FileDescriptor keep_only(FileDescriptor own) {
  constexpr int kFirst = STDERR_FILENO + 1;
  if (own.get() != kFirst && ::dup3(own.get(), kFirst, O_CLOEXEC) == kFirst)
    own = FileDescriptor(kFirst);
  ::closefrom(own.get() + 1);
  return own;
}

void replace(int stream, const FileDescriptor& by) {
  if (by) ::dup2(by.get(), stream);
}

// Empty where it cannot be written.
FileDescriptor open_log(int folder) {
  return FileDescriptor(::openat(folder, "dorajitd.log",
                                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
}

}  // namespace

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
    background.told_ = keep_only(std::move(write_end));
    return background;
  }
  write_end.reset();
  background.parent_exit_code_ = wait_for_byte(read_end.get()) ? 0 : exit_code_of_child(child);
  return background;
}

void Background::settle(int folder) {
  FileDescriptor log = open_journal("dorajitd");
  if (log) mark_priorities();
  if (!log) {
    log = open_log(folder);
  }
  const FileDescriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  replace(STDIN_FILENO, nothing);
  replace(STDOUT_FILENO, nothing);
  replace(STDERR_FILENO, log ? log : nothing);
  (void)!::chdir("/");
  (void)!::write(told_.get(), "", 1);
  told_.reset();
}

}  // namespace dorajit::daemon
