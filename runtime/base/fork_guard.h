// State that a fork() can leave inconsistent in the child: mutexes held by other threads,
// half-updated tables.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

namespace dorajit {

enum class Work : std::size_t {
  kPreparing,  // compiling, loading and tuning in an engine
  kLogging,
  kSqlite,  // SQLite's own global state; databases are open for one operation at a time
};
inline constexpr std::size_t kWorks = 3;

// Marks such work as in progress during its lifetime.
class ForkGuard {
 public:
  explicit ForkGuard(Work work);
  ForkGuard(ForkGuard&& other) noexcept;
  ForkGuard& operator=(ForkGuard&&) = delete;
  ~ForkGuard();

 private:
  Work work_;
  int generation_;  // at its construction; -1: moved from, not counted
};

extern std::array<std::atomic<int>, kWorks> generation_by_work;

// Fork generation: how many of the forks that led to this process happened during such work.
// Objects of an earlier generation may only be read atomically; never use or destroy them
// otherwise.
inline int fork_generation(Work work) {
  return generation_by_work[static_cast<std::size_t>(work)].load(std::memory_order_relaxed);
}

// Holds a T and allows a new T to replace it after a fork has made it unusable. Thread-safe. Its
// destructor destroys nothing, so a static object is safe while threads still run at exit.
template <class T, Work kWork>
class ForkSafe {
 public:
  // Null if there is none, or if it was lost to a fork.
  T* find() const {
    Made* const found = made_.load(std::memory_order_acquire);
    return found != nullptr && found->is_current() ? &found->value : nullptr;
  }

  // The latest T, even if it was lost to a fork; null if there is none.
  const T* last() const {
    const Made* const found = made_.load(std::memory_order_acquire);
    return found != nullptr ? &found->value : nullptr;
  }

  // Makes a T from the arguments, or returns the one that another thread made first.
  template <class... Arguments>
  T& renew(Arguments&&... arguments) {
    Made* const fresh = new Made{.value = T(std::forward<Arguments>(arguments)...)};
    Made* found = made_.load(std::memory_order_acquire);
    const bool is_present = found != nullptr && found->is_current();
    if (!is_present && made_.compare_exchange_strong(found, fresh)) return fresh->value;
    delete fresh;
    return found->value;
  }

  // Call when nobody uses the T any more. One lost to a fork is leaked: its locks cannot be
  // destroyed.
  void destroy() {
    Made* const made = made_.exchange(nullptr);
    if (made != nullptr && made->is_current()) delete made;
  }

 private:
  struct Made {
    [[nodiscard]] bool is_current() const { return generation == fork_generation(kWork); }

    int generation = fork_generation(kWork);
    T value;
  };
  std::atomic<Made*> made_ = nullptr;
};

// The T of the process, made on first use. Its constructor gets a pointer to the T that was lost to
// a fork, or null.
template <class T, Work kWork>
T& current(ForkSafe<T, kWork>& of_process) {
  T* const found = of_process.find();
  return found != nullptr ? *found : of_process.renew(of_process.last());
}

}  // namespace dorajit
