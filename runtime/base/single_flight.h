// Single flight: of several threads that need the same object, one makes it while the others wait.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace dorajit {

// Thread-safe. Keys are compared with ==; few are in progress at a time.
template <class Key>
class SingleFlight {
 public:
  // The right to make the object of a key, held until destruction, even if making it throws.
  class Turn {
   public:
    Turn(SingleFlight& flight, Key key) : flight_(flight), key_(std::move(key)) {
      std::unique_lock lock(flight_.mutex_);
      flight_.made_.wait(lock, [&] { return !std::ranges::contains(flight_.making_, key_); });
      flight_.making_.push_back(key_);
    }
    ~Turn() {
      {
        const std::scoped_lock lock(flight_.mutex_);
        std::erase(flight_.making_, key_);
      }
      flight_.made_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    SingleFlight& flight_;
    const Key key_;
  };

  // Waits while another thread has the turn. That thread may have made the object: look it up
  // again.
  [[nodiscard]] Turn take_turn(Key key) { return Turn(*this, std::move(key)); }

 private:
  std::mutex mutex_;
  std::condition_variable made_;
  std::vector<Key> making_;  // under mutex_
};

}  // namespace dorajit
