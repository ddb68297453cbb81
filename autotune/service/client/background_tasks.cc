#include "autotune/service/client/background_tasks.h"

#include <unistd.h>

#include <csignal>
#include <system_error>
#include <utility>

#include "runtime/base/file_descriptor.h"

namespace dorajit::autotune {

OwnThread::~OwnThread() {
  if (is_of_a_parent()) static_cast<void>(shared_.release());
}

bool OwnThread::start(std::function<void()> work) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const ScopeExit restored([&] { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); });
  try {
    shared_->thread = std::thread([shared = shared_.get(), work = std::move(work)] {
      work();
      const std::scoped_lock lock(shared->mutex);
      shared->has_ended = true;
      shared->ended.notify_all();
    });
  } catch (const std::system_error&) {
    return false;
  }
  process_ = ::getpid();
  return true;
}

bool OwnThread::is_here() const { return process_ == ::getpid(); }

bool OwnThread::is_of_a_parent() const { return process_ != 0 && !is_here(); }

void OwnThread::await(std::chrono::steady_clock::time_point deadline) {
  if (!is_here()) return;
  std::unique_lock lock(shared_->mutex);
  shared_->ended.wait_until(lock, deadline, [this] { return shared_->has_ended; });
}

void OwnThread::join() {
  if (is_here() && shared_->thread.joinable()) shared_->thread.join();
}

bool BackgroundTasks::start() {
  return thread_.is_here() || thread_.start([this] { work(); });
}

void BackgroundTasks::post(Task task) {
  {
    const std::scoped_lock lock(mutex_);
    if (is_ending_) return;
    posted_.push_back(std::move(task));
  }
  due_.release();
}

void BackgroundTasks::end() {
  if (thread_.is_of_a_parent()) return;
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(is_ending_, true)) return;
    posted_.clear();
  }
  due_.release();
}

void BackgroundTasks::close() {
  end();
  thread_.join();
}

void BackgroundTasks::work() {
  for (;;) {
    due_.acquire();
    Task task;
    {
      const std::scoped_lock lock(mutex_);
      if (is_ending_) return;
      task = std::move(posted_.front());
      posted_.pop_front();
    }
    task();
  }
}

}  // namespace dorajit::autotune
