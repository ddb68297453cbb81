#include "apps/cli/commands/daemon_process.h"

#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <format>
#include <fstream>
#include <system_error>
#include <utility>

#include "runtime/base/own_location.h"

namespace dorajit::cli {
namespace {

std::unexpected<Error> system_failure(std::string_view what, int error) {
  return fail(StatusCode::kIoError,
              std::format("{}: {}", what, std::generic_category().message(error)));
}

}  // namespace

Result<int> run_dorajitd(std::vector<std::string> arguments) {
  std::string program = folder_of_this_code() + "/dorajitd";
  if (std::error_code error; !std::filesystem::exists(program, error)) program = "dorajitd";
  arguments.insert(arguments.begin(), program);
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  pid_t child = -1;
  if (const int error =
          ::posix_spawnp(&child, program.c_str(), nullptr, nullptr, words.data(), environ)) {
    return system_failure("cannot run dorajitd, which is neither beside dorajit nor on PATH",
                          error);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return system_failure("waitpid", errno);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Result<ProcessHandle> ProcessHandle::open(pid_t process) {
  FileDescriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (!descriptor) return system_failure(std::format("process {}", process), errno);
  std::string name;
  std::getline(std::ifstream(std::format("/proc/{}/comm", process)), name);
  if (name != "dorajitd") {
    return fail(StatusCode::kIoError,
                std::format("process {} is not dorajitd here; does the daemon run in a container?",
                            process));
  }
  return ProcessHandle(std::move(descriptor));
}

Status ProcessHandle::signal(int number) const {
  const long result = ::syscall(SYS_pidfd_send_signal, descriptor_.get(), number, nullptr, 0);
  if (result == 0 || errno == ESRCH) return {};  // it has ended already
  return system_failure("cannot signal the daemon", errno);
}

bool ProcessHandle::wait(std::chrono::milliseconds limit) const {
  pollfd end{.fd = descriptor_.get(), .events = POLLIN, .revents = 0};
  int ready = 0;
  while ((ready = ::poll(&end, 1, static_cast<int>(limit.count()))) < 0 && errno == EINTR) {
  }
  return ready > 0;
}

}  // namespace dorajit::cli
