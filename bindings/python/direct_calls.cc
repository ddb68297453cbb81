#include "bindings/python/direct_calls.h"

#include <dorajit/dorajit.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "bindings/python/call_route.h"
#include "bindings/python/native_call.h"
#include "bindings/python/positional_function.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

PyObject* none() { return Py_NewRef(Py_None); }

PyObject* wrong_count(int wanted, Py_ssize_t count) {
  return PyErr_Format(PyExc_TypeError, "takes %d arguments, not %zd", wanted, count);
}

double to_double(PyObject* number) {
  const double value = PyFloat_AsDouble(number);
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

bool is_true(PyObject* object) {
  const int answer = PyObject_IsTrue(object);
  if (answer < 0) throw py::error_already_set();
  return answer == 1;
}

py::object owned(PyObject* made) {
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

py::object empty_like(PyObject* tensor) {
  return owned(PyObject_CallOneArg(torch().empty_like, tensor));
}

py::object type_of(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("dtype");
  return owned(PyObject_GetAttr(tensor, name));
}

py::object empty_like(PyObject* tensor, PyObject* dtype) {
  if (type_of(tensor).ptr() == dtype) return empty_like(tensor);
  const std::array<PyObject*, 2> arguments = {tensor, dtype};
  return owned(PyObject_Vectorcall(torch().empty_like, arguments.data(), 1, dtype_alone()));
}

void count_change(PyObject* tensor) { owned(PyObject_CallOneArg(torch().count_change, tensor)); }

// The tensors of a call, as they are.
template <std::size_t kMost>
class TensorList {
 public:
  // Adds a tensor, or null for None. False if no kernel takes it.
  bool add(PyObject* tensor) {
    const std::size_t at = count_++;
    is_there_[at] = tensor != Py_None;
    return !is_there_[at] || tensors_[at].read(tensor);
  }

  // The same of one that was allocated for the call.
  bool add_result(PyObject* tensor) {
    const std::size_t at = count_++;
    is_there_[at] = tensor != Py_None;
    return !is_there_[at] || tensors_[at].read_result(tensor);
  }

  const DLTensor* operator[](std::size_t i) const {
    return is_there_[i] ? &tensors_[i].dl() : nullptr;
  }

  // All of them; those that were not added are null.
  [[nodiscard]] std::array<const DLTensor*, kMost> all() const {
    std::array<const DLTensor*, kMost> pointers;
    for (std::size_t i = 0; i < kMost; ++i) pointers[i] = (*this)[i];
    return pointers;
  }

 private:
  std::array<TorchTensor, kMost> tensors_;
  std::array<bool, kMost> is_there_{};
  std::size_t count_ = 0;
};

// Launches the operation. Whether it was done; if not, nothing was, and there is another way.
// Throws error_already_set for what fails on every way.
template <std::size_t kCount>
bool launch(NativeOperation& operation, const std::array<const DLTensor*, kCount>& tensors,
            double scale, void* workspace = nullptr, std::int64_t workspace_bytes = 0) {
  void* const stream = current_stream(tensors[0]->device);
  dorajit_error* error = nullptr;
  const dorajit_status status = try_to_run(
      [&](dorajit_engine* engine, dorajit_error** what) {
        return dorajit_launch(engine, stream, operation.handle, tensors.data(), kCount, &scale, 1,
                              workspace, workspace_bytes, what);
      },
      error);
  if (may_be_served_otherwise(status)) {
    dorajit_error_destroy(error);
    return false;
  }
  check(status, error);
  count_call(operation);
  return true;
}

PyObject* compose_directly(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != 5) return wrong_count(5, count);
  return with_python_errors([&]() -> PyObject* {
    const Route route = route_of({arguments, 3}, arguments[3]);
    if (route == kFailed) throw py::error_already_set();
    if (route != kDirect) return PyLong_FromLong(route);
    PyObject* const lora = arguments[0];
    const bool is_in_place = is_true(arguments[4]);
    if (is_in_place && is_frozen_by_inference(lora)) return PyLong_FromLong(route);
    TensorList<4> tensors;
    for (int i = 0; i < 3; ++i) {
      if (!tensors.add(arguments[i])) return PyLong_FromLong(route);
    }
    if (!have_one_shape({tensors[0], tensors[1]})) return PyLong_FromLong(route);
    py::object out = is_in_place ? py::reinterpret_borrow<py::object>(lora) : empty_like(lora);
    if (!is_in_place && !tensors.add_result(out.ptr())) return PyLong_FromLong(route);
    const double scale = PyFloat_AS_DOUBLE(arguments[3]);
    static NativeOperation& operation = native_operation("compose");
    const bool is_done =
        launch(operation,
               std::array{tensors[0], tensors[1], tensors[2], tensors[is_in_place ? 0 : 3]}, scale);
    if (!is_done) return PyLong_FromLong(route);
    if (is_in_place) count_change(lora);
    return out.release().ptr();
  });
}

PyObject* compose_inner_directly(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != 4) return wrong_count(4, count);
  return with_python_errors([&]() -> PyObject* {
    const double scale = to_double(arguments[3]);
    TensorList<5> tensors;
    for (int i = 0; i < 3; ++i) {
      if (!tensors.add(arguments[i])) return none();
    }
    const py::object out = empty_like(arguments[0]);
    const py::object inner = empty_like(arguments[0]);
    if (!tensors.add_result(out.ptr()) || !tensors.add_result(inner.ptr())) return none();
    if (!have_one_shape({tensors[0], tensors[1]})) return none();
    static NativeOperation& operation = native_operation("compose_inner");
    const bool is_done = launch(operation, tensors.all(), scale);
    return is_done ? PyTuple_Pack(2, out.ptr(), inner.ptr()) : none();
  });
}

// lora, result, gain, bias, scale, whether inner is wanted.
PyObject* compose_residual_directly(PyObject*, PyObject* const* arguments,
                                    Py_ssize_t count) noexcept {
  if (count != 6) return wrong_count(6, count);
  return with_python_errors([&]() -> PyObject* {
    const double scale = to_double(arguments[4]);
    TensorList<6> tensors;
    for (int i = 0; i < 4; ++i) {
      if (!tensors.add(arguments[i])) return none();
    }
    // Of two types the result would have the wider.
    if (type_of(arguments[0]).ptr() != type_of(arguments[1]).ptr()) return none();
    const py::object out = empty_like(arguments[0]);
    const py::object inner = is_true(arguments[5]) ? empty_like(arguments[0]) : py::none();
    if (!tensors.add_result(out.ptr()) || !tensors.add_result(inner.ptr())) return none();
    if (!have_one_shape({tensors[0], tensors[1]})) return none();
    static NativeOperation& operation = native_operation("compose_residual");
    const bool is_done = launch(operation, tensors.all(), scale);
    return is_done ? PyTuple_Pack(2, out.ptr(), inner.ptr()) : none();
  });
}

// d_out, inner, gain, scale, which gradients are wanted, the types of the first two.
template <bool kIsResidual>
PyObject* backward_directly(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != 7) return wrong_count(7, count);
  return with_python_errors([&]() -> PyObject* {
    const auto [d_out, inner, gain, scale, wanted, lora_type, base_type] =
        std::array{arguments[0], arguments[1], arguments[2], arguments[3],
                   arguments[4], arguments[5], arguments[6]};
    if (!PyTuple_Check(wanted) || PyTuple_GET_SIZE(wanted) < 3) return none();
    const auto is_wanted = [&](Py_ssize_t i) { return is_true(PyTuple_GET_ITEM(wanted, i)); };
    TensorList<6> tensors;
    for (PyObject* const tensor : {d_out, is_wanted(2) ? inner : Py_None, gain}) {
      if (!tensors.add(tensor)) return none();
    }
    const py::object d_lora = is_wanted(0) ? empty_like(d_out, lora_type) : py::none();
    const py::object d_base = is_wanted(1) ? empty_like(d_out, base_type) : py::none();
    const py::object d_gain = is_wanted(2) ? empty_like(gain) : py::none();
    for (const py::object& made : {d_lora, d_base, d_gain}) {
      if (!tensors.add_result(made.ptr())) return none();
    }
    if (!have_one_shape({tensors[0], tensors[1]})) return none();
    static NativeOperation& operation =
        native_operation(kIsResidual ? "residual_backward" : "backward");
    std::int64_t bytes = 0;
    if (dorajit_operation_workspace(operation.handle, tensors.all().data(), 6, &bytes, nullptr) !=
        DORAJIT_OK) {
      return none();
    }
    TorchMemory workspace;
    if (bytes > 0) workspace = TorchMemory(d_out, bytes);
    const double scale_value = to_double(scale);
    const bool is_done = launch(operation, tensors.all(), scale_value, workspace.data(), bytes);
    return is_done ? PyTuple_Pack(3, d_lora.ptr(), d_base.ptr(), d_gain.ptr()) : none();
  });
}

}  // namespace

void add_direct_calls(py::module_& module) {
  static std::array methods = {
      fast_method(
          "compose_directly", compose_directly,
          "compose_directly($module, lora, base, gain, scale, inplace, /)\n--\n\n"
          "(Tensor, Tensor, Tensor, float, bool) -> Tensor | int\n\n"
          "The result of compose, if a kernel takes the tensors as they are and nobody else "
          "has a say; else what route() gives, and nothing was done."),
      fast_method("compose_inner_directly", compose_inner_directly,
                  "compose_inner_directly($module, lora, base, gain, scale, /)\n--\n\n"
                  "(Tensor, Tensor, Tensor, float) -> tuple[Tensor, Tensor] | None\n\n"
                  "out and inner of compose_inner, if a kernel takes the tensors as they are; else "
                  "None, and nothing was done."),
      fast_method("compose_residual_directly", compose_residual_directly,
                  "compose_residual_directly($module, lora, result, gain, bias, scale, "
                  "keeps_inner, /)\n--\n\n"
                  "(Tensor, Tensor, Tensor, Tensor | None, float, bool) -> "
                  "tuple[Tensor, Tensor | None] | None\n\n"
                  "out and inner of compose_residual, likewise."),
      fast_method("backward_directly", backward_directly<false>,
                  "backward_directly($module, d_out, inner, gain, scale, wanted, lora_type, "
                  "base_type, /)\n--\n\n"
                  "(Tensor, Tensor | None, Tensor, float, Sequence[bool], dtype, dtype) -> "
                  "tuple[Tensor | None, Tensor | None, Tensor | None] | None\n\n"
                  "The gradients of compose for lora, base and gain, None for those that are not "
                  "wanted, likewise."),
      fast_method("residual_backward_directly", backward_directly<true>,
                  "residual_backward_directly($module, d_out, inner, gain, scale, wanted, "
                  "lora_type, result_type, /)\n--\n\n"
                  "(Tensor, Tensor | None, Tensor, float, Sequence[bool], dtype, dtype) -> "
                  "tuple[Tensor | None, Tensor | None, Tensor | None] | None\n\n"
                  "Those of compose_residual for lora, result and gain, likewise."),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
}

}  // namespace dorajit::python
