#include "runtime/compile/time_limit.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "runtime/base/dynamic_library.h"
#include "runtime/base/scope_exit.h"

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

}  // namespace dorajit::compile
