// The operations of the library, and the tensors of their calls as Python passes them.
#pragma once

#include <dlpack/dlpack.h>
#include <dorajit/dorajit.h>
#include <pybind11/pybind11.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/python/torch_tensor.h"

namespace dorajit::python {

// An operation with the data that the Python module needs: operands, and how many calls kernels
// served.
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

enum class Refusal { kRaised, kReturned };

// Runs an operation and returns its outputs, as Operands::outputs(). `tensors` are in the order of
// the operands, `scalars` in theirs. Errors that other views of the tensors or PyTorch may avoid
// are raised, or null is returned, as `refusal` says. Needs the GIL.
pybind11::object run_operation(NativeOperation& operation, std::span<PyObject* const> tensors,
                               const double* scalars, Refusal refusal);

inline constexpr std::size_t kMaxOperands = 12;

// Raises DORAJIT_UNSUPPORTED for the named argument.
[[noreturn]] void refuse(const char* operation, const char* argument);

// Whether the caller leaves an optional operand out, by passing None or False.
bool is_left_out(const dorajit_operand_info& operand, PyObject* given);

// The tensors of a call; null for operands that are left out. An output that is passed as an
// element type, or as True for the type of its model, is allocated: like its model, the first input
// with the same dimensions, or else with the sizes that its dimensions have in other inputs. Needs
// the GIL.
class Operands {
 public:
  Operands() = default;
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  // Reads the arguments. False if they cannot be passed to the library; why_not() then raises the
  // reason.
  bool read(const NativeOperation& operation, std::span<PyObject* const> arguments);
  [[noreturn]] void why_not(const NativeOperation& operation) const;

  [[nodiscard]] const DLTensor* const* data() const { return pointers_.data(); }
  const DLTensor* operator[](std::size_t i) const { return pointers_[i]; }

  // The output, or a tuple if the operation has several, with None for those that were left out.
  [[nodiscard]] pybind11::object outputs(const NativeOperation& operation) const;

 private:
  bool add(PyObject* given, std::size_t i);
  bool add_output(const NativeOperation& operation, std::span<PyObject* const> arguments,
                  std::size_t i);
  bool have_equal_shapes(const NativeOperation& operation);

  std::array<TorchTensor, kMaxOperands> tensors_;
  std::array<const DLTensor*, kMaxOperands> pointers_{};
  std::array<pybind11::object, kMaxOperands> made_;
  std::size_t refused_ = 0;
  bool is_without_sizes_ = false;
};

}  // namespace dorajit::python
