#include "runtime/compile/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <format>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

#include "runtime/base/dynamic_library.h"
#include "runtime/base/file_descriptor.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX has it in no header

namespace dorajit::compile {
namespace {

// A forked child inherits the count but none of the threads, hence the process id.
struct Abandoned {
  pid_t process = 0;
  int threads = 0;  // of that process
};
constinit std::atomic<Abandoned> abandoned = Abandoned{};

int threads_of(const Abandoned& seen, pid_t process) {
  return seen.process == process ? seen.threads : 0;
}

int abandoned_threads() { return threads_of(abandoned, ::getpid()); }

void add_abandoned_threads(int change) {
  const pid_t own = ::getpid();
  Abandoned seen = abandoned;
  while (!abandoned.compare_exchange_weak(
      seen, {.process = own, .threads = threads_of(seen, own) + change})) {
  }
}

// The state that both threads share.
struct Job {
  explicit Job(std::function<void()> what) : work(std::move(what)) {}

  const std::function<void()> work;
  std::mutex mutex;
  std::condition_variable finished;
  bool is_done = false;       // under mutex, like all below
  bool is_abandoned = false;  // nobody waits for it
  std::exception_ptr thrown;
};

void run(Job& job) {
  std::exception_ptr thrown;
  try {
    job.work();
  } catch (...) {
    thrown = std::current_exception();
  }
  {
    const std::scoped_lock lock(job.mutex);
    job.is_done = true;
    job.thrown = thrown;
    if (job.is_abandoned) add_abandoned_threads(-1);
  }
  job.finished.notify_all();
}

// Blocks all signals in the new thread: they are for the application's threads.
std::thread start(const std::shared_ptr<Job>& job) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const ScopeExit restored([&] { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); });
  return std::thread([job] { run(*job); });
}

// The abandoned thread runs code of this library, so the library must stay loaded.
void keep_this_library() {
  const std::string file = DynamicLibrary::file_of(reinterpret_cast<const void*>(&run));
  // In an executable dlopen() fails, and nothing needs to be kept loaded.
  if (auto own = DynamicLibrary::open(file)) own->keep_forever();
}

// After a library's destructors have run, a thread that is still inside the library would crash.
void end_without_destructors(int status, void*) {
  if (abandoned_threads() == 0) return;
  std::fflush(nullptr);
  ::_exit(status);
}

void protect_exit() {
  // Registered after the libraries that the work uses, so it runs before their destructors.
  [[maybe_unused]] static const int registered = ::on_exit(end_without_destructors, nullptr);
}

using Clock = std::chrono::steady_clock;

// How often a child is looked at whose output says nothing, and one that has closed its output.
constexpr int kPauseMs = 10;
constexpr int kPauseAfterOutputMs = 1;

// Appends what can be read at once; false at the end of the output. Bounded, because the writer may
// never pause.
bool read_available(int fd, std::string& output) {
  char buffer[4096];
  for (std::size_t seen = 0; seen < kMaxOutputBytes;) {
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 && errno == EAGAIN;
    seen += static_cast<std::size_t>(count);
    const std::size_t room = kMaxOutputBytes - output.size();
    output.append(buffer, std::min(static_cast<std::size_t>(count), room));
  }
  return true;
}

// While the child runs already: posix_spawn() cannot do it before, and the limit of this process is
// not for others. Nobody writes so much in the meantime.
void limit_written_bytes(pid_t child) {
  rlimit limit{};
  prlimit(child, RLIMIT_FSIZE, nullptr, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, kMaxWrittenBytes);
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, kMaxWrittenBytes);
  prlimit(child, RLIMIT_FSIZE, &limit, nullptr);
}

// Collects the output until the child ends (true) or the deadline passes (false).
bool wait_for(pid_t child, int fd, Clock::time_point deadline, ProcessResult& result) {
  for (bool is_open = true;;) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    // If the host process ignores SIGCHLD, the kernel reaps the child and its exit status is lost.
    const bool is_lost = ended < 0 && errno == ECHILD;
    if (is_open) is_open = read_available(fd, result.output);
    if (ended == child) {
      result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return true;
    }
    if (is_lost) return true;
    if (Clock::now() >= deadline) return false;
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    poll(&waiting, is_open ? 1 : 0, is_open ? kPauseMs : kPauseAfterOutputMs);
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

Outcome run_within(std::chrono::milliseconds limit, std::function<void()> work) {
  if (abandoned_threads() >= kMaxAbandonedThreads) return Outcome::kRefused;
  const auto job = std::make_shared<Job>(std::move(work));
  std::thread thread;
  try {
    thread = start(job);
  } catch (const std::system_error&) {
    run(*job);
  }
  std::unique_lock lock(job->mutex);
  if (job->finished.wait_for(lock, limit, [&] { return job->is_done; })) {
    lock.unlock();
    // A thread that ends during exit() would use libraries whose destructors have run.
    if (thread.joinable()) thread.join();
    if (job->thrown) std::rethrow_exception(job->thrown);
    return Outcome::kDone;
  }
  job->is_abandoned = true;
  add_abandoned_threads(1);
  lock.unlock();
  thread.detach();
  keep_this_library();
  protect_exit();
  return Outcome::kTooLate;
}

Result<ProcessResult> run_process(const std::vector<std::string>& argv,
                                  std::chrono::milliseconds timeout, int folder) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return fail(StatusCode::kIoError, std::format("pipe: {}", std::strerror(errno)));
  }
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions{};
  posix_spawn_file_actions_init(&actions);
  const ScopeExit destroyed([&] { posix_spawn_file_actions_destroy(&actions); });
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDERR_FILENO);
  if (folder >= 0) posix_spawn_file_actions_addfchdir_np(&actions, folder);
  posix_spawnattr_t attributes{};
  posix_spawnattr_init(&attributes);
  const ScopeExit attributes_destroyed([&] { posix_spawnattr_destroy(&attributes); });
  // The calling thread may have blocked signals and the host may ignore some.
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<std::string> arguments = argv;
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  const int spawned = posix_spawnp(&child, pointers[0], &actions, &attributes, pointers.data(),
                                   environment(folder >= 0).data());
  if (spawned != 0) {
    return fail(StatusCode::kIoError,
                std::format("cannot run {}: {}", argv.front(), std::strerror(spawned)));
  }
  writer.reset();
  limit_written_bytes(child);
  ProcessResult result;
  if (wait_for(child, reader.get(), Clock::now() + timeout, result)) return result;
  kill(-child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return fail(
      StatusCode::kIoError,
      std::format("{} did not end within {} ms and was stopped", argv.front(), timeout.count()),
      result.output);
}

}  // namespace dorajit::compile
