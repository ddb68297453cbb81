#include "runtime/base/fork_guard.h"

#include <pthread.h>

#include <utility>

namespace dorajit {
namespace {

constinit std::array<std::atomic<int>, kWorks> uses_by_work{};

std::size_t index_of(Work work) { return static_cast<std::size_t>(work); }

void in_child() {
  // Whatever goes on is another thread's, which is gone, or of the thread that forked in its midst.
  for (std::size_t i = 0; i < kWorks; ++i) {
    if (uses_by_work[i].exchange(0) > 0) losses_by_work[i].fetch_add(1);
  }
}

// Before there are threads, of which one might be at it while another forks.
[[maybe_unused]] const int kRegistered = ::pthread_atfork(nullptr, nullptr, in_child);

}  // namespace

constinit std::array<std::atomic<int>, kWorks> losses_by_work{};

ForkGuard::ForkGuard(Work work) : work_(work), losses_(fork_generation(work)) {
  uses_by_work[index_of(work)].fetch_add(1);
}

ForkGuard::ForkGuard(ForkGuard&& other) noexcept
    : work_(other.work_), losses_(std::exchange(other.losses_, -1)) {}

ForkGuard::~ForkGuard() {
  // After a fork in its midst, the child counts from zero.
  if (losses_ == fork_generation(work_)) uses_by_work[index_of(work_)].fetch_sub(1);
}

}  // namespace dorajit
