// A thread that the children of its process leave alone.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace dorajit::autotune {

// start(), await() and join() are called by one thread at a time, the others by any.
class OwnThread {
 public:
  OwnThread() = default;
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;
  // In the process that started the thread, join() comes first.
  ~OwnThread();

  // Once. No signal is delivered to the thread: signals are for those of the application. False
  // where the system gives no thread.
  bool start(std::function<void()> work);

  // Whether this process has started it.
  [[nodiscard]] bool is_here() const;
  // Whether a parent of this process has, so that it is not there.
  [[nodiscard]] bool is_of_a_parent() const;

  // Until the thread has ended or the deadline has passed.
  void await(std::chrono::steady_clock::time_point deadline);
  // Does nothing for a thread that is not here.
  void join();

 private:
  // What a child must not destroy: its thread is not there to be joined or detached, and to destroy
  // a condition variable that has waiters is to wait for them.
  struct Shared {
    std::thread thread;
    std::mutex mutex;
    std::condition_variable ended;
    bool has_ended = false;  // under mutex
  };

  std::atomic<pid_t> process_ = 0;  // whose thread it is; 0: not started
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
};

}  // namespace dorajit::autotune
