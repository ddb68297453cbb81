// Runs independent work on all processors, or on fewer threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace dorajit::tests {

inline unsigned processors() { return std::max(1U, std::thread::hardware_concurrency()); }

template <class Work>
void parallel_for(std::size_t count, const Work& work, unsigned threads = processors()) {
  std::atomic<std::size_t> next{0};
  const auto take = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(take);
  take();
  for (std::thread& thread : others) thread.join();
}

}  // namespace dorajit::tests
