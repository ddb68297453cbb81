// Worker threads of the CPU device.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace dorajit::device {

// Runs one job at a time on all its threads; callers from several threads take turns. Threads start
// with the first job that wants them. After a fork the child's pool runs every job on the calling
// thread.
class ThreadPool {
 public:
  // A job is a plain function, so that handing it over allocates nothing.
  using Job = void (*)(void* context, int worker);

  explicit ThreadPool(int max_workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls job(context, w) for every w in [0, workers), worker 0 on the calling thread, and returns
  // when all have returned. `workers` beyond max_workers are run by the calling thread.
  void run(int workers, Job job, void* context);

  [[nodiscard]] int max_workers() const { return max_workers_; }

 private:
  void start_threads();
  void work(int worker);

  const int max_workers_;
  const int owner_pid_;
  std::mutex callers_;  // held by the caller whose job runs

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::vector<std::thread> threads_;  // under callers_
  std::uint64_t generation_ = 0;      // the rest under mutex_
  int active_workers_ = 0;
  int pending_ = 0;
  bool stopping_ = false;
  Job job_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace dorajit::device
