// Functions that run in the background, on a thread whose owner a forked child can destroy.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <semaphore>
#include <thread>

namespace dorajit::autotune {

// A thread whose owner can safely be destroyed in a forked child. start(), await() and join() must
// be called by one thread at a time, the other functions by any.
class OwnThread {
 public:
  OwnThread() = default;
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;
  // In the process that started the thread, call join() first.
  ~OwnThread();

  // Call once. The thread receives no signals, because they are for the application's threads.
  // False if the system cannot create a thread.
  bool start(std::function<void()> work);

  // Whether this process has started the thread.
  [[nodiscard]] bool is_here() const;
  // Whether a parent of this process has started it, so that it does not exist here.
  [[nodiscard]] bool is_of_a_parent() const;

  // Waits until the thread has ended or the deadline has passed.
  void await(std::chrono::steady_clock::time_point deadline);
  // Does nothing if this process has not started the thread.
  void join();

 private:
  // A child must not destroy these: its thread cannot be joined or detached, and destroying a
  // condition variable waits for its waiters.
  struct Shared {
    std::thread thread;
    std::mutex mutex;
    std::condition_variable ended;
    bool has_ended = false;  // under mutex
  };

  std::atomic<pid_t> process_ = 0;  // the process that started it; 0: not started
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
};

// Runs the functions in order on a background thread, so that the caller is not blocked.
// Thread-safe, except start() and close().
class BackgroundTasks {
 public:
  using Task = std::function<void()>;

  BackgroundTasks() = default;
  BackgroundTasks(const BackgroundTasks&) = delete;
  BackgroundTasks& operator=(const BackgroundTasks&) = delete;
  ~BackgroundTasks() { close(); }

  // Starts the thread unless it runs. False if the system cannot create one.
  bool start();

  // Does nothing after end(). Never blocks.
  void post(Task task);

  // Drops functions that have not started. Never blocks.
  void end();
  // Call after end(): waits until the running function has returned or the deadline has passed.
  void await(std::chrono::steady_clock::time_point deadline) { thread_.await(deadline); }
  // end() and await() without a deadline. Does nothing in a child of the process that started the
  // thread.
  void close();

 private:
  void work();

  std::mutex mutex_;
  std::deque<Task> posted_;  // under mutex_
  bool is_ending_ = false;   // under mutex_
  // Counts posted functions, plus one at the end. Unlike a condition variable, a child may destroy
  // it.
  std::counting_semaphore<> due_{0};
  OwnThread thread_;
};

}  // namespace dorajit::autotune
