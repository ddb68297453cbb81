// Worker threads of the CPU device.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
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
  // What the threads share. In a forked child it belongs to threads that are not there, and is left
  // alone: to destroy a condition variable that has waiters is to wait for them.
  struct Shared {
    std::mutex callers;                // held by the caller whose job runs
    std::vector<std::thread> threads;  // under callers

    std::mutex mutex;
    std::condition_variable wake;
    std::condition_variable done;
    std::uint64_t generation = 0;  // the rest under mutex
    int active_workers = 0;
    int pending = 0;
    bool stopping = false;
    Job job = nullptr;
    void* context = nullptr;
  };

  void start_threads();
  static void work(Shared& shared, int worker);

  const int max_workers_;
  const int owner_pid_;
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
};

}  // namespace dorajit::device
