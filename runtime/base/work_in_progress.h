// What a fork in the middle of leaves half done in the child: locks held by threads that are not
// there, tables half changed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace dorajit {

enum class Work : std::size_t {
  kPreparing,  // what an engine does besides launching: compiling, loading, tuning
  kLogging,
  kSqlite,  // which keeps state of its own; databases are open for one operation at a time
};
inline constexpr std::size_t kWorks = 3;

// Lives as long as a thread is in the middle of such work.
class WorkInProgress {
 public:
  explicit WorkInProgress(Work work);
  WorkInProgress(WorkInProgress&& other) noexcept;
  WorkInProgress& operator=(WorkInProgress&&) = delete;
  ~WorkInProgress();

 private:
  Work work_;
  int losses_;  // at its beginning; -1: it counts no more
};

extern std::array<std::atomic<int>, kWorks> losses_by_work;

// How many of the forks that this process stems from met such work of another thread. What was
// there at a lower count must neither be used, but for what is atomic, nor be destroyed.
inline int losses_to_fork(Work work) {
  return losses_by_work[static_cast<std::size_t>(work)].load(std::memory_order_relaxed);
}

// A T of the process, made when it is first wanted and never destroyed. A T is made of a pointer to
// the one that was lost to a fork, or null for the first.
template <class T, Work kWork>
class ForkRenewed {
 public:
  T& get() {
    Made* found = made_.load(std::memory_order_acquire);
    const int losses = losses_to_fork(kWork);
    if (found != nullptr && found->losses == losses) return found->value;
    Made* const anew = new Made{.losses = losses, .value = T(found ? &found->value : nullptr)};
    if (made_.compare_exchange_strong(found, anew)) return anew->value;
    delete anew;  // another thread was faster
    return found->value;
  }

 private:
  struct Made {
    int losses;
    T value;
  };
  std::atomic<Made*> made_ = nullptr;
};

}  // namespace dorajit
