#include <dorajit/dorajit.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/eligibility.h"
#include "bindings/python/module_parts.h"
#include "bindings/python/native_call.h"
#include "bindings/python/native_operation.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {

namespace py = pybind11;

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
  const bool is_noted = is_recorded(tensors);
  if (is_noted) {
    status = note_problem(operation.handle, {operands.data(), tensors.size()},
                          {scalars, static_cast<std::size_t>(operation.info.num_scalars)}, nullptr,
                          error);
  } else if (operation.info.may_need_workspace != 0) {
    status = dorajit_operation_workspace(operation.handle, operands.data(), count, &bytes, &error);
    if (bytes > 0) workspace = TorchMemory(tensors[0], bytes);
  }
  if (status == DORAJIT_OK && !is_noted) {
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
  if (!is_noted) operation.count_call();
  return operands.outputs(operation);
}

namespace {

constexpr std::size_t kMaxScalars = 8;
constexpr const char* kOperationCapsule = "dorajit.operations.table";

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
    for (std::size_t i = 0; i < tensors; ++i) is_target_[i] = is_given_output(i);
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
      if (is_input(i) ? !is_left_out(operation_->operands[i], tensors_[i]) : is_target_[i]) {
        given[count++] = tensors_[i];
      }
    }
    return python::who_sees({given.data(), count}, scalars_);
  }

  // Whether PyTorch allows writing the passed output tensors.
  [[nodiscard]] bool may_write() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (is_target_[i] && is_frozen_by_inference(tensors_[i])) return false;
    }
    return true;
  }

  // Increments the versions of the passed output tensors.
  void count_changes() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (!is_target_[i]) continue;
      owned(PyObject_CallOneArg(torch().count_change, tensors_[i]));
    }
  }

 private:
  [[nodiscard]] bool is_input(std::size_t i) const {
    return operation_->operands[i].is_output == 0;
  }

  // Whether tensor i is an output tensor that the caller passes.
  [[nodiscard]] bool is_given_output(std::size_t i) const {
    return !is_input(i) && tensors_[i] != Py_True &&
           !is_left_out(operation_->operands[i], tensors_[i]) &&
           kernel_type_of(tensors_[i]) == nullptr;
  }

  NativeOperation* operation_ = nullptr;
  std::span<PyObject* const> tensors_;
  std::span<PyObject* const> scalars_;
  std::array<bool, kMaxOperands> is_target_;  // is_given_output() of each tensor
};

// Returns the outputs. Raises an error for tensors that no kernel takes. Arguments are the tensors
// of the operation and then its scalars; `self` is a capsule of a NativeOperation.
PyObject* call_operation(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept {
  Call call;
  if (!call.read(self, arguments, count)) return nullptr;
  return with_python_errors([&] { return call.run(Refusal::kRaised).release().ptr(); });
}

// As call_operation, if nothing observes the call and a kernel serves it; otherwise does nothing
// and returns the result of who_sees(). A passed output tensor is written as by an in-place
// operation of PyTorch: its version is incremented.
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

struct Method {
  std::string name;
  PyMethodDef definition{};
};

void add_function(py::module_& module, NativeOperation& operation, _PyCFunctionFast function,
                  std::string name) {
  static std::deque<Method> methods;  // Python keeps pointers to them
  Method& method = methods.emplace_back(std::move(name));
  method.definition = fast_method(method.name.c_str(), function, operation.info.documentation);
  const py::capsule self(&operation, kOperationCapsule);
  module.attr(method.name.c_str()) =
      owned(PyCFunction_NewEx(&method.definition, self.ptr(), nullptr));
}

py::dict described(const dorajit_operand_info& operand) {
  using py::arg;
  return py::dict(arg("name") = operand.name,
                  arg("dimensions") = py::tuple(py::str(operand.dimensions).attr("split")(", ")),
                  arg("is_output") = operand.is_output != 0,
                  arg("is_required") = operand.presence == DORAJIT_OPERAND_REQUIRED,
                  arg("is_for_sum") = operand.presence == DORAJIT_OPERAND_FOR_SUM,
                  arg("is_sum") = operand.is_sum != 0,
                  arg("is_per_channel") = operand.is_per_channel != 0);
}

py::list described_operations() {
  py::list all;
  for (const NativeOperation& operation : native_operations()) {
    py::list operands;
    for (const dorajit_operand_info& operand : operation.operands) {
      operands.append(described(operand));
    }
    py::list scalars;
    for (std::int32_t i = 0; i < operation.info.num_scalars; ++i) {
      scalars.append(operation.info.scalars[i]);
    }
    all.append(
        py::make_tuple(operation.info.name, operation.info.documentation, operands, scalars));
  }
  return all;
}

void warmup(const std::string& name, const py::sequence& tensors) {
  const NativeOperation* operation = find_native_operation(name);
  if (operation == nullptr) {
    raise(DORAJIT_INVALID_ARGUMENT,
          "warmup: unknown operation `" + name + "`; operations() lists them");
  }
  std::vector<TorchTensor> read_tensors(tensors.size());
  std::vector<const DLTensor*> pointers(tensors.size(), nullptr);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const py::object tensor = tensors[i];
    if (tensor.is_none()) continue;
    if (!read_tensors[i].read(tensor)) refuse("warmup", std::to_string(i).c_str());
    pointers[i] = &read_tensors[i].dl();
  }
  run([&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_warmup(engine, operation->handle, pointers.data(),
                          static_cast<std::int32_t>(pointers.size()), nullptr, 0, error);
  });
}

py::dict call_counts() {
  py::dict counts;
  for (const NativeOperation& operation : native_operations()) {
    counts[operation.info.name] = operation.calls.load(std::memory_order_relaxed);
  }
  return counts;
}

}  // namespace

void add_operations(py::module_& module) {
  for (NativeOperation& operation : native_operations()) {
    const std::string name = operation.info.name;
    add_function(module, operation, call_operation, name);
    add_function(module, operation, call_at_once, name + "_at_once");
  }
  module.def("operations", &described_operations,
             "Name, documentation, operands and names of the scalars of each operation. The flags "
             "of an operand are those of dorajit.operations.table.Operand.");
  module.def("warmup", &warmup, py::arg("operation"), py::arg("tensors"),
             "Makes ready what a call of the operation with such tensors would launch.");
  module.def("call_counts", &call_counts, "Operation -> number of calls that a kernel served.");
}

}  // namespace dorajit::python
