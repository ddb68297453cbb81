#include "autotune/service/client/errands.h"

#include <utility>

namespace dorajit::autotune {

bool Errands::start() {
  return thread_.is_here() || thread_.start([this] { work(); });
}

void Errands::post(Errand errand) {
  {
    const std::scoped_lock lock(mutex_);
    if (is_ending_) return;
    posted_.push_back(std::move(errand));
  }
  due_.release();
}

void Errands::end() {
  if (thread_.is_of_a_parent()) return;
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(is_ending_, true)) return;
    posted_.clear();
  }
  due_.release();
}

void Errands::close() {
  end();
  thread_.join();
}

void Errands::work() {
  for (;;) {
    due_.acquire();
    Errand errand;
    {
      const std::scoped_lock lock(mutex_);
      if (is_ending_) return;
      errand = std::move(posted_.front());
      posted_.pop_front();
    }
    errand();
  }
}

}  // namespace dorajit::autotune
