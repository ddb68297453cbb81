// The slices of tests that run every config of large spaces. Most of their time is compilation, and
// NVRTC parses for one thread of a process at a time, so processes share the slices: those of
// `ctest --parallel`, or GoogleTest's shards.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <format>
#include <ostream>
#include <vector>

#include "tests/conformance/slice.h"

namespace dorajit::tests {

inline auto slices() {
  constexpr std::size_t kCount = 16;
  std::vector<Slice> all;
  for (std::size_t i = 0; i < kCount; ++i) all.push_back({.index = i, .count = kCount});
  return testing::ValuesIn(all);
}

// CTest uses it in the names of tests.
inline std::ostream& operator<<(std::ostream& out, const Slice& slice) {
  return out << std::format("{} of {}", slice.index + 1, slice.count);
}

}  // namespace dorajit::tests
