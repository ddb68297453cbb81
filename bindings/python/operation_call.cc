#include "bindings/python/operation_call.h"

#include <dorajit/dorajit.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/python/eligibility.h"
#include "bindings/python/native_call.h"
#include "bindings/python/native_error.h"
#include "bindings/python/native_operation.h"
#include "bindings/python/operands.h"
#include "bindings/python/positional_function.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

constexpr std::size_t kMaxScalars = 8;

enum class Refusal { kRaised, kReturned };

// Runs an operation; `tensors` are in the order of the operands. Errors that other views of the
// tensors or PyTorch may avoid are raised, or null is returned, as `refusal` says.
py::object run_operation(NativeOperation& operation, std::span<PyObject* const> tensors,
                         const double* scalars, Refusal refusal) {
  const auto count = static_cast<std::int32_t>(tensors.size());
  Operands operands;
  if (!operands.read(operation, tensors)) {
    if (refusal == Refusal::kReturned) return {};
    operands.why_not(operation);
  }
  std::int64_t bytes = 0;
  TorchMemory workspace;
  dorajit_error* error = nullptr;
  dorajit_status status = DORAJIT_OK;
  if (operation.info.may_need_workspace != 0) {
    status = dorajit_operation_workspace(operation.handle, operands.data(), count, &bytes, &error);
    if (bytes > 0) workspace = TorchMemory(tensors[0], bytes);
  }
  if (status == DORAJIT_OK) {
    void* const stream = current_stream(operands[0]->device);
    status = try_to_run(
        [&](dorajit_engine* engine, dorajit_error** what) {
          return dorajit_launch(engine, stream, operation.handle, operands.data(), count, scalars,
                                operation.info.num_scalars, workspace.data(), bytes, what);
        },
        error);
  }
  if (refusal == Refusal::kReturned && may_be_served_otherwise(status)) {
    dorajit_error_destroy(error);
    return {};
  }
  check(status, error);
  count_call(operation);
  return operands.outputs(operation);
}

// The arguments of a call of an operation: its tensors and then its scalars.
class Call {
 public:
  // `self` is the capsule of the operation. False: a Python error is set.
  bool read(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    operation_ = static_cast<NativeOperation*>(PyCapsule_GetPointer(self, kOperationCapsule));
    if (operation_ == nullptr) return false;
    const std::size_t tensors = operation_->operands.size();
    const auto num_scalars = static_cast<std::size_t>(operation_->info.num_scalars);
    if (count != static_cast<Py_ssize_t>(tensors + num_scalars)) {
      PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", operation_->info.name,
                   static_cast<Py_ssize_t>(tensors + num_scalars), count);
      return false;
    }
    tensors_ = {arguments, tensors};
    scalars_ = {arguments + tensors, num_scalars};
    return true;
  }

  // As run_operation.
  [[nodiscard]] py::object run(Refusal refusal) const {
    std::array<double, kMaxScalars> values;
    for (std::size_t i = 0; i < scalars_.size(); ++i) {
      values[i] = PyFloat_AsDouble(scalars_[i]);
      if (values[i] == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    }
    return run_operation(*operation_, tensors_, values.data(), refusal);
  }

  // As python::who_sees.
  [[nodiscard]] int who_sees() const {
    std::array<PyObject*, kMaxOperands> given;
    std::size_t count = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (is_input(i) ? !is_left_out(operation_->operands[i], tensors_[i]) : is_target(i)) {
        given[count++] = tensors_[i];
      }
    }
    return python::who_sees({given.data(), count}, scalars_);
  }

  // Whether PyTorch allows writing the passed output tensors.
  [[nodiscard]] bool may_write() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (is_target(i) && is_frozen_by_inference(tensors_[i])) return false;
    }
    return true;
  }

  // Increments the versions of the passed output tensors.
  void count_changes() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (!is_target(i)) continue;
      const auto done =
          py::reinterpret_steal<py::object>(PyObject_CallOneArg(torch().count_change, tensors_[i]));
      if (!done) throw py::error_already_set();
    }
  }

 private:
  [[nodiscard]] bool is_input(std::size_t i) const {
    return operation_->operands[i].is_output == 0;
  }

  // Whether tensor i is an output tensor that the caller passes.
  [[nodiscard]] bool is_target(std::size_t i) const {
    return !is_input(i) && tensors_[i] != Py_True &&
           !is_left_out(operation_->operands[i], tensors_[i]) &&
           kernel_type_of(tensors_[i]) == nullptr;
  }

  NativeOperation* operation_ = nullptr;
  std::span<PyObject* const> tensors_;
  std::span<PyObject* const> scalars_;
};

}  // namespace

PyObject* call_operation(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept {
  Call call;
  if (!call.read(self, arguments, count)) return nullptr;
  return with_python_errors([&] { return call.run(Refusal::kRaised).release().ptr(); });
}

PyObject* call_at_once(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept {
  Call call;
  if (!call.read(self, arguments, count)) return nullptr;
  return with_python_errors([&]() -> PyObject* {
    const int seen = call.who_sees();
    if (seen < 0) throw py::error_already_set();
    if (seen != kNobody || !call.may_write()) return PyLong_FromLong(seen);
    py::object made = call.run(Refusal::kReturned);
    if (!made) return PyLong_FromLong(seen);
    call.count_changes();
    return made.release().ptr();
  });
}

}  // namespace dorajit::python
