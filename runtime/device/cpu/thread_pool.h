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
// with the first job that needs them. After a fork, the child's pool runs every job on the calling
// thread.
class ThreadPool {
 public:
  // A function pointer and a context: passing a job allocates nothing.
  using Job = void (*)(void* context, int worker);

  explicit ThreadPool(int max_workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls job(context, w) for every w in [0, workers), with worker 0 on the calling thread, and
  // returns when all calls have returned. The calling thread also runs workers beyond max_workers.
  void run(int workers, Job job, void* context);

  [[nodiscard]] int max_workers() const { return max_workers_; }

 private:
  // State shared by the threads. A forked child never touches it: its threads do not exist there,
  // and destroying a condition variable waits for its waiters.
  struct Shared {
    std::mutex callers;                // held by the caller whose job runs
    std::vector<std::thread> threads;  // under callers

    std::mutex mutex;
    std::condition_variable wake;
    std::condition_variable done;
    std::uint64_t generation = 0;  // this and the following: under mutex
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
