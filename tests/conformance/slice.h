// A part of a list, for tests that several processes divide among themselves.
#pragma once

#include <cstddef>

namespace dorajit::tests {

// Every element whose number is `index` modulo `count`: by default, all of them.
struct Slice {
  std::size_t index = 0;
  std::size_t count = 1;

  [[nodiscard]] bool has(std::size_t number) const { return number % count == index; }
  [[nodiscard]] bool is_whole() const { return count == 1; }
};

}  // namespace dorajit::tests
