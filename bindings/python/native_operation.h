// The operations of the library, with the data that the Python module needs: operands, and how many
// calls kernels served.
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
  explicit NativeOperation(const dorajit_operation* operation);

  const dorajit_operation* handle;
  dorajit_operation_info info{};
  std::vector<dorajit_operand_info> operands;
  // For each operand the first operand with the same dimensions, its model. An output is allocated
  // like its model if that is an input.
  std::vector<std::size_t> models;
  std::vector<std::vector<std::string>> dimensions;  // for each operand the names of its dimensions
  std::atomic<std::int64_t> calls = 0;               // that a kernel served

  void count_call() { calls.fetch_add(1, std::memory_order_relaxed); }
};

// All operations in the library's order, read once. Thread-safe.
std::deque<NativeOperation>& native_operations();

// Null if no operation has the name.
NativeOperation* find_native_operation(std::string_view name);

}  // namespace dorajit::python
