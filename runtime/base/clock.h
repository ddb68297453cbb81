// The clock that budgets and deadlines are compared with. Whoever spends a budget is given the
// clock, so that the outcome of a test does not depend on how busy the machine is.
#pragma once

#include <chrono>
#include <functional>

namespace dorajit {

using Moment = std::chrono::steady_clock::time_point;
using Seconds = std::chrono::duration<double>;

// Thread-safe, and never goes back.
using Clock = std::function<Moment()>;

// The moment that long after another.
inline Moment after(Moment moment, Seconds time) {
  return moment + std::chrono::duration_cast<Moment::duration>(time);
}

}  // namespace dorajit
