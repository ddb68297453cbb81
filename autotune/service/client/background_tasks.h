// What the client does for others and cannot foresee the time of.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <semaphore>

#include "autotune/service/client/own_thread.h"

namespace dorajit::autotune {

// Done in order by a thread of their own, so that whoever has them done goes on meanwhile.
// Thread-safe, but for start() and close().
class Errands {
 public:
  using Errand = std::function<void()>;

  Errands() = default;
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;
  ~Errands() { close(); }

  // Starts the thread, unless it runs. False where the system gives none.
  bool start();

  // Does nothing after end(). Waits for nothing.
  void post(Errand errand);

  // What has not been begun is dropped. Waits for nothing.
  void end();
  // After end(): until what has been begun is done, or the deadline has passed.
  void await(std::chrono::steady_clock::time_point deadline) { thread_.await(deadline); }
  // Both, without a deadline. In a child of the process that started the thread it does nothing.
  void close();

 private:
  void work();

  std::mutex mutex_;
  std::deque<Errand> posted_;  // under mutex_
  bool is_ending_ = false;     // under mutex_
  // How many were posted, and one for the end. Unlike a condition variable, a child may destroy it.
  std::counting_semaphore<> due_{0};
  OwnThread thread_;
};

}  // namespace dorajit::autotune
