#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <format>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "apps/cli/commands/commands.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/service/client/daemon_connection.h"
#include "autotune/service/protocol/socket_path.h"
#include "cache/files/directories.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/json_text.h"

namespace dorajit::cli {
namespace {

constexpr std::chrono::seconds kWatchInterval{1};
constexpr std::chrono::milliseconds kStartPoll{200};
constexpr std::chrono::milliseconds kLongestEnd{30'000};  // without its running jobs
constexpr std::chrono::seconds kStartWait{5};
constexpr std::chrono::milliseconds kNoLimit{-1};
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

std::string tuning_dir(const Invocation& invocation) {
  return cache::live_directory(invocation.settings.cache_dir);
}

std::string log_path(const Invocation& invocation) {
  return std::format("{}/{}", tuning_dir(invocation), autotune::protocol::kLogName);
}

Result<Json> ask_status(const Invocation& invocation) {
  DORAJIT_ASSIGN(
      const std::string text,
      autotune::ask_status(autotune::protocol::socket_folder(invocation.settings.daemon_dir),
                           autotune::protocol::own_hello(tuning_dir(invocation))));
  auto status = parse_json(text);
  if (status && status->is_object()) return status;
  return fail(StatusCode::kIoError, "the daemon's answer is not a JSON document");
}

pid_t pid_in(const Json& status) {
  return static_cast<pid_t>(json_member<std::int64_t>(status, "pid").value_or(0));
}

Result<ExitCode> print_status(const Invocation& invocation) {
  DORAJIT_ASSIGN(const Json status, ask_status(invocation));
  return print_result(invocation.json, "daemon status", status, daemon_text(status));
}

// Until the daemon or the reader of the output has ended, or the user ends it.
Result<ExitCode> watch(const Invocation& invocation) {
  const bool clears = !invocation.json && ::isatty(STDOUT_FILENO) != 0;
  for (;;) {
    if (clears) print_bytes(kClearScreen);
    DORAJIT_TRY(print_status(invocation));
    if (output_is_lost()) return ExitCode::kFailed;
    std::this_thread::sleep_for(kWatchInterval);
  }
}

std::unexpected<Error> system_failure(std::string_view what, int error) {
  return fail(StatusCode::kIoError,
              std::format("{}: {}", what, std::generic_category().message(error)));
}

// Runs dorajitd, from beside this program or else along PATH, until it has gone to the background
// or ended: its exit code. It inherits the standard streams.
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

// A handle of the daemon's process, which stays the same one after its end, when another process
// may get its id. kIoError for any other process: the id may come from a container.
Result<FileDescriptor> open_daemon(pid_t process) {
  FileDescriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (!handle) return system_failure(std::format("process {}", process), errno);
  std::string name;
  std::getline(std::ifstream(std::format("/proc/{}/comm", process)), name);
  if (name == "dorajitd") return handle;
  return fail(
      StatusCode::kIoError,
      std::format("process {} is not dorajitd here; does the daemon run in a container?", process));
}

Status signal_daemon(const FileDescriptor& daemon, int signal) {
  const long result = ::syscall(SYS_pidfd_send_signal, daemon.get(), signal, nullptr, 0);
  if (result == 0 || errno == ESRCH) return {};  // it has ended already
  return system_failure("cannot signal the daemon", errno);
}

// Whether it has ended by then. A negative limit is none.
bool has_ended(const FileDescriptor& daemon, std::chrono::milliseconds limit) {
  pollfd end{.fd = daemon.get(), .events = POLLIN, .revents = 0};
  int ready = 0;
  while ((ready = ::poll(&end, 1, static_cast<int>(limit.count()))) < 0 && errno == EINTR) {
  }
  return ready > 0;
}

// `options` are those of dorajitd.
Result<ExitCode> start(const Invocation& invocation, std::vector<std::string> options) {
  auto status = ask_status(invocation);
  bool is_started = false;
  if (!status) {
    // Makes a daemon that goes to the background a child of this process.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    options.insert(options.begin(), {"--cache-dir", invocation.settings.cache_dir});
    DORAJIT_ASSIGN(const int code, run_dorajitd(std::move(options)));
    if (code != 0) return static_cast<ExitCode>(code);  // it has printed the reason
    // Another daemon that runs already may just have lost its socket, and makes it again.
    const auto deadline = std::chrono::steady_clock::now() + kStartWait;
    while (!(status = ask_status(invocation)) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kStartPoll);
    }
    if (!status) return std::unexpected(status.error());
    is_started = ::waitpid(pid_in(*status), nullptr, WNOHANG) >= 0;  // a child of this process
  }
  const std::string log = log_path(invocation);
  return print_result(
      invocation.json, "daemon start",
      {{"started", is_started}, {"pid", pid_in(*status)}, {"log", log}},
      std::format("dorajitd {} as process {}; it logs to {}\n",
                  is_started ? "runs" : "was running already", pid_in(*status), log));
}

Result<ExitCode> stop(const Invocation& invocation, bool at_once) {
  DORAJIT_ASSIGN(const Json status, ask_status(invocation));
  const pid_t pid = pid_in(status);
  DORAJIT_ASSIGN(const FileDescriptor daemon, open_daemon(pid));
  DORAJIT_TRY(signal_daemon(daemon, SIGTERM));
  // Another signal, as a second SIGTERM may become one with the first.
  if (at_once) DORAJIT_TRY(signal_daemon(daemon, SIGINT));
  if (!has_ended(daemon, at_once ? kLongestEnd : kNoLimit)) {
    return fail(StatusCode::kIoError,
                std::format("process {} has not ended within {} s; `kill -9 {}` ends it, which "
                            "loses no winner",
                            pid, kLongestEnd.count() / 1000, pid));
  }
  return print_result(invocation.json, "daemon stop", {{"pid", pid}},
                      std::format("dorajitd, process {}, has ended\n", pid));
}

}  // namespace

void declare_daemon(CLI::App& app, std::vector<Command>& commands) {
  CLI::App* group = app.add_subcommand("daemon", "Start, inspect or stop the tuning daemon");
  group->require_subcommand(1);
  group->footer("Example:\n  dorajit daemon start\n  dorajit daemon stop");
  const auto [starting, started] = add_command<CLI::App*>(
      *group, commands, "start", "Start dorajitd in the background; takes its options, too",
      "dorajit daemon start --idle-exit 3600",
      [](const Invocation& invocation, const CLI::App* parsed) {
        return start(invocation, parsed->remaining());
      });
  started = &starting;
  starting.allow_extras();
  const auto [showing, watches] = add_command<bool>(
      *group, commands, "status", "Show queue, workers and recent winners",
      "dorajit daemon status --watch", [](const Invocation& invocation, bool repeats) {
        return repeats ? watch(invocation) : print_status(invocation);
      });
  showing.add_flag("--watch", watches, "Show it again every second");
  const auto [stopping, at_once] =
      add_command<bool>(*group, commands, "stop", "End it when its running jobs are done",
                        "dorajit daemon stop --now", stop);
  stopping.add_flag("--now", at_once, "Do not wait for running jobs");
}

}  // namespace dorajit::cli
