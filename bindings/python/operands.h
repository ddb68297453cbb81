// The tensors of a call of an operation, as Python passes them.
#pragma once

#include <dlpack/dlpack.h>
#include <dorajit/dorajit.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <span>

#include "bindings/python/native_operation.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {

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
