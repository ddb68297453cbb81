#include "autotune/service/client/background_tasks.h"

#include <utility>

namespace dorajit::autotune {

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
