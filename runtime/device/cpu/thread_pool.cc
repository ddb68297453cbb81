#include "runtime/device/cpu/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <exception>

#include "runtime/base/log.h"

namespace dorajit::device {

ThreadPool::ThreadPool(int max_workers)
    : max_workers_(std::max(1, max_workers)), owner_pid_(getpid()) {}

ThreadPool::~ThreadPool() {
  if (getpid() != owner_pid_) {
    static_cast<void>(shared_.release());
    return;
  }
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->wake.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

void ThreadPool::start_threads() {
  auto& threads = shared_->threads;
  try {
    threads.reserve(static_cast<std::size_t>(max_workers_));
    for (int worker = static_cast<int>(threads.size()) + 1; worker < max_workers_; ++worker) {
      threads.emplace_back([shared = shared_.get(), worker] { work(*shared, worker); });
    }
  } catch (const std::exception&) {
    log_once(LogLevel::kWarning, "thread_pool",
             "cannot start all worker threads; CPU kernels use fewer of them");
  }
}

void ThreadPool::run(int workers, Job job, void* context) {
  if (workers <= 1 || max_workers_ <= 1 || getpid() != owner_pid_) {
    for (int worker = 0; worker < workers; ++worker) job(context, worker);
    return;
  }
  const std::scoped_lock turn(shared_->callers);
  if (static_cast<int>(shared_->threads.size()) + 1 < max_workers_) start_threads();
  const int threads = std::min(workers - 1, static_cast<int>(shared_->threads.size()));
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->job = job;
    shared_->context = context;
    shared_->active_workers = threads;
    shared_->pending = threads;
    ++shared_->generation;
  }
  shared_->wake.notify_all();
  job(context, 0);
  for (int worker = threads + 1; worker < workers; ++worker) job(context, worker);
  std::unique_lock lock(shared_->mutex);
  shared_->done.wait(lock, [this] { return shared_->pending == 0; });
}

void ThreadPool::work(Shared& shared, int worker) {
  std::uint64_t seen = 0;
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.wake.wait(lock, [&] { return shared.stopping || shared.generation != seen; });
    if (shared.stopping) return;
    seen = shared.generation;
    if (worker > shared.active_workers) continue;
    const Job job = shared.job;
    void* const context = shared.context;
    lock.unlock();
    job(context, worker);
    lock.lock();
    if (--shared.pending == 0) shared.done.notify_one();
  }
}

}  // namespace dorajit::device
