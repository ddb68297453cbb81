#include "runtime/base/fork_guard.h"

#include <pthread.h>

namespace dorajit {
namespace {

constinit std::array<std::atomic<int>, kWorks> uses_by_work{};

std::size_t index_of(Work work) { return static_cast<std::size_t>(work); }

void in_child() {
  // Work in progress belongs to a thread that does not exist in the child, or was interrupted by
  // the forking thread itself.
  for (std::size_t i = 0; i < kWorks; ++i) {
    if (uses_by_work[i].exchange(0) > 0) generation_by_work[i].fetch_add(1);
  }
}

// Registered before any thread starts, so that no fork is missed.
[[maybe_unused]] const int kRegistered = ::pthread_atfork(nullptr, nullptr, in_child);

}  // namespace

constinit std::array<std::atomic<int>, kWorks> generation_by_work{};

ForkGuard::ForkGuard(Work work) : work_(work), generation_(fork_generation(work)) {
  uses_by_work[index_of(work)].fetch_add(1);
}

ForkGuard::ForkGuard(ForkGuard&& other) noexcept
    : work_(other.work_), generation_(std::exchange(other.generation_, -1)) {}

ForkGuard::~ForkGuard() {
  // If a fork happened during this work, the child's count restarted at zero.
  if (generation_ == fork_generation(work_)) uses_by_work[index_of(work_)].fetch_sub(1);
}

}  // namespace dorajit
