// What a fork in the middle of leaves half done in the child: locks held by threads that are not
// there, tables half changed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

namespace dorajit {

enum class Work : std::size_t {
  kPreparing,  // what an engine does besides launching: compiling, loading, tuning
  kLogging,
  kSqlite,  // which keeps state of its own; databases are open for one operation at a time
};
inline constexpr std::size_t kWorks = 3;

// Lives as long as a thread is in the middle of such work.
class ForkGuard {
 public:
  explicit ForkGuard(Work work);
  ForkGuard(ForkGuard&& other) noexcept;
  ForkGuard& operator=(ForkGuard&&) = delete;
  ~ForkGuard();

 private:
  Work work_;
  int losses_;  // at its beginning; -1: it counts no more
};

extern std::array<std::atomic<int>, kWorks> losses_by_work;

// How many of the forks that this process stems from met such work of another thread. What was
// there at a lower count must neither be used, but for what is atomic, nor be destroyed.
inline int fork_generation(Work work) {
  return losses_by_work[static_cast<std::size_t>(work)].load(std::memory_order_relaxed);
}

// A T that a fork may lose, and then a new one takes its place. Thread-safe. Destroys nothing by
// itself, so that it may be of a process that ends with threads at work.
template <class T, Work kWork>
class ForkSafe {
 public:
  // Null if there is none, or it was lost.
  T* find() {
    Made* const found = made_.load(std::memory_order_acquire);
    return found != nullptr && found->is_whole() ? &found->value : nullptr;
  }
  const T* find() const {
    const Made* const found = made_.load(std::memory_order_acquire);
    return found != nullptr && found->is_whole() ? &found->value : nullptr;
  }

  // The last that was made, lost or not, or null.
  const T* last() const {
    const Made* const found = made_.load(std::memory_order_acquire);
    return found != nullptr ? &found->value : nullptr;
  }

  // A T made of the arguments, or what another thread was faster to make.
  template <class... Arguments>
  T& renew(Arguments&&... arguments) {
    Made* const anew = new Made{.value = T(std::forward<Arguments>(arguments)...)};
    Made* found = made_.load(std::memory_order_acquire);
    const bool is_there = found != nullptr && found->is_whole();
    if (!is_there && made_.compare_exchange_strong(found, anew)) return anew->value;
    delete anew;
    return found->value;
  }

  // Once nobody uses it. What was lost stays: its locks cannot be destroyed.
  void destroy() {
    Made* const made = made_.exchange(nullptr);
    if (made != nullptr && made->is_whole()) delete made;
  }

 private:
  struct Made {
    [[nodiscard]] bool is_whole() const { return losses == fork_generation(kWork); }

    int losses = fork_generation(kWork);
    T value;
  };
  std::atomic<Made*> made_ = nullptr;
};

// The T of the process, made when it is first wanted, of a pointer to the one that was lost, or
// null for the first.
template <class T, Work kWork>
T& current(ForkSafe<T, kWork>& of_process) {
  T* const found = of_process.find();
  return found != nullptr ? *found : of_process.renew(of_process.last());
}

}  // namespace dorajit
