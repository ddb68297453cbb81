// A queue of functions that run in the background because their duration is unknown.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <semaphore>

#include "autotune/service/client/own_thread.h"

namespace dorajit::autotune {

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
