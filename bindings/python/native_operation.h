// The operations of the library as the Python module sees them: what each takes, and how many of
// its calls kernels served.
#pragma once

#include <dorajit/dorajit.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace dorajit::python {

struct NativeOperation {
  const dorajit_operation* handle = nullptr;
  dorajit_operation_info info{};
  std::vector<dorajit_operand_info> operands;
  // By operand: the first one with the same dimensions. An output is allocated after it, if it is
  // an input.
  std::vector<std::size_t> models;
  std::vector<std::vector<std::string>> dimensions;  // by operand, their names
  std::atomic<std::int64_t> calls = 0;
};

// In the library's order, made once. Thread-safe.
std::deque<NativeOperation>& native_operations();

// Null for a name that no operation has.
NativeOperation* find_native_operation(std::string_view name);

}  // namespace dorajit::python
