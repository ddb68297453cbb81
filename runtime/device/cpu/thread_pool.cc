#include "runtime/device/cpu/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "runtime/base/log.h"

namespace dorajit::device {

ThreadPool::ThreadPool(int max_workers)
    : max_workers_(std::max(1, max_workers)), owner_pid_(getpid()) {}

ThreadPool::~ThreadPool() {
  if (getpid() != owner_pid_) {
    // The threads stayed in the parent; there is nothing here to join.
    for (std::thread& thread : threads_) thread.detach();
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::start_threads() {
  try {
    for (int worker = static_cast<int>(threads_.size()) + 1; worker < max_workers_; ++worker) {
      threads_.emplace_back([this, worker] { work(worker); });
    }
  } catch (const std::system_error& error) {
    log_once(LogLevel::kWarning, "thread_pool",
             "cannot start all worker threads; CPU kernels use fewer of them");
  }
}

void ThreadPool::run(int workers, Job job, void* context) {
  if (workers <= 1 || max_workers_ <= 1 || getpid() != owner_pid_) {
    for (int worker = 0; worker < workers; ++worker) job(context, worker);
    return;
  }
  const std::scoped_lock turn(callers_);
  if (static_cast<int>(threads_.size()) + 1 < max_workers_) start_threads();
  const int threads = std::min(workers - 1, static_cast<int>(threads_.size()));
  {
    const std::scoped_lock lock(mutex_);
    job_ = job;
    context_ = context;
    active_workers_ = threads;
    pending_ = threads;
    ++generation_;
  }
  wake_.notify_all();
  job(context, 0);
  for (int worker = threads + 1; worker < workers; ++worker) job(context, worker);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return pending_ == 0; });
}

void ThreadPool::work(int worker) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    if (worker > active_workers_) continue;
    const Job job = job_;
    void* const context = context_;
    lock.unlock();
    job(context, worker);
    lock.lock();
    if (--pending_ == 0) done_.notify_one();
  }
}

}  // namespace dorajit::device
