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

namespace dorajit::daemon {
namespace {

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
