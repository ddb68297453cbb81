#include "runtime/compile/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <format>
#include <string_view>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/scope_exit.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX has it in no header

namespace dorajit::compile {
namespace {

// Reads until the other end closes (true) or the deadline passes (false).
bool read_all(int fd, std::chrono::steady_clock::time_point deadline, std::string& output) {
  char buffer[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, static_cast<int>(left.count())) < 0 && errno != EINTR) return false;
    if (waiting.revents == 0) continue;
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    output.append(buffer, static_cast<std::size_t>(count));
  }
}

// The environment of the child: this process's, with PATH added if it is missing, because a
// compiler searches for its parts. TMPDIR is the working folder if the child has its own.
std::vector<char*> environment(bool has_own_folder) {
  // Never destroyed: a thread may be compiling while the process exits.
  static auto& standard = *new std::string(std::format("PATH={}", kStandardPath));
  static auto& own_folder = *new std::string("TMPDIR=.");
  std::vector<char*> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    if (!has_own_folder || !std::string_view(*variable).starts_with("TMPDIR=")) {
      variables.push_back(*variable);
    }
  }
  if (has_own_folder) variables.push_back(own_folder.data());
  if (std::getenv("PATH") == nullptr) variables.push_back(standard.data());
  variables.push_back(nullptr);
  return variables;
}

}  // namespace

Result<ProcessResult> run_process(const std::vector<std::string>& argv,
                                  std::chrono::milliseconds timeout, int folder) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return fail(StatusCode::kIoError, std::format("pipe: {}", std::strerror(errno)));
  }
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  posix_spawn_file_actions_t actions{};
  posix_spawn_file_actions_init(&actions);
  const ScopeExit destroyed([&] { posix_spawn_file_actions_destroy(&actions); });
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDERR_FILENO);
  if (folder >= 0) posix_spawn_file_actions_addfchdir_np(&actions, folder);

  std::vector<std::string> arguments = argv;
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  const int spawned = posix_spawnp(&child, pointers[0], &actions, nullptr, pointers.data(),
                                   environment(folder >= 0).data());
  if (spawned != 0) {
    return fail(StatusCode::kIoError,
                std::format("cannot run {}: {}", argv.front(), std::strerror(spawned)));
  }
  writer.reset();
  ProcessResult result;
  const bool ended =
      read_all(reader.get(), std::chrono::steady_clock::now() + timeout, result.output);
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    // If the host process ignores SIGCHLD, the kernel reaps the child and its exit status is lost.
    if (errno == ECHILD) return result;
    if (errno != EINTR) break;
  }
  if (!ended) {
    return fail(
        StatusCode::kIoError,
        std::format("{} did not end within {} ms and was stopped", argv.front(), timeout.count()),
        result.output);
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace dorajit::compile
