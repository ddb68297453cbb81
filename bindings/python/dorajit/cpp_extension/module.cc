// The layer's autograd node in C++, for plain tensors that kernels take without a copy. All other
// cases are left to Python. Compiled against the installed PyTorch (__init__.py).
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <utility>

#include "call.h"
#include "linear.h"
#include "norms.h"

namespace dorajit::python {
namespace {

// A positional argument.
class Argument {
 public:
  explicit Argument(PyObject* object) : object_(object) {}

  [[nodiscard]] bool is_none() const { return object_ == Py_None; }
  [[nodiscard]] bool is_true() const { return object_ == Py_True; }
  [[nodiscard]] bool is_float() const { return PyFloat_CheckExact(object_) != 0; }
  // Exactly a torch.Tensor or a parameter; a subclass would have to see the call.
  [[nodiscard]] bool is_tensor() const { return THPVariable_CheckTypeExact(Py_TYPE(object_)); }
  [[nodiscard]] bool is_parameter() const {
    return Py_TYPE(object_) == reinterpret_cast<PyTypeObject*>(ParameterClass);
  }
  [[nodiscard]] double number() const { return PyFloat_AS_DOUBLE(object_); }
  // Undefined for None.
  [[nodiscard]] Tensor tensor() const { return is_none() ? Tensor() : THPVariable_Unpack(object_); }
  [[nodiscard]] at::ScalarType type() const {
    TORCH_CHECK_TYPE(THPDtype_Check(object_), "takes element types");
    return reinterpret_cast<THPDtype*>(object_)->scalar_type;
  }

 private:
  PyObject* object_;
};

class Arguments {
 public:
  Arguments(PyObject* const* objects, Py_ssize_t count, Py_ssize_t expected) : objects_(objects) {
    TORCH_CHECK_TYPE(count == expected, "takes ", expected, " arguments");
  }
  Argument operator[](Py_ssize_t index) const { return Argument(objects_[index]); }

 private:
  PyObject* const* objects_;
};

// x, weight, a, b, gain, bias, scale, is_one_launch: the first arguments of a forward pass.
constexpr Py_ssize_t kNumOperands = 8;

bool are_operands(const Arguments& given) {
  for (Py_ssize_t i = 0; i < 5; ++i) {
    if (!given[i].is_tensor()) return false;
  }
  const bool is_of_one_type = [&] {
    const at::ScalarType type = given[0].tensor().scalar_type();
    return element_type(type) && given[2].tensor().scalar_type() == type &&
           given[3].tensor().scalar_type() == type;
  }();
  return is_of_one_type && (given[5].is_none() || given[5].is_tensor()) && given[6].is_float();
}

LinearOperands operands_of(const Arguments& given) {
  return {.x = given[0].tensor(),
          .weight = given[1].tensor(),
          .a = given[2].tensor(),
          .b = given[3].tensor(),
          .gain = given[4].tensor(),
          .bias = given[5].tensor(),
          .scale = given[6].number(),
          .is_one_launch = given[7].is_true()};
}

std::optional<LinearResult> compute_without_gil(const LinearOperands& of, bool keeps_inner) {
  const pybind11::gil_scoped_release no_gil;
  return compute_linear(of, keeps_inner);
}

// The output with its autograd node, or None if Python must handle the call.
PyObject* linear(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const Arguments given(arguments, count, kNumOperands + 6);
  if (!are_operands(given)) Py_RETURN_NONE;
  for (Py_ssize_t i = kNumOperands; i < kNumOperands + 4; ++i) {
    if (!given[i].is_tensor()) Py_RETURN_NONE;
  }
  const LinearOperands of = operands_of(given);
  const Tensor magnitude = given[10].tensor();
  const LinearNode node = {
      .divisor = given[11].tensor(),
      .has_float_products = given[12].is_true(),
      .held = {given[1].is_parameter(), given[2].is_parameter(), given[3].is_parameter()},
      .saves_output = given[13].is_true()};
  const auto made = compute_without_gil(of, magnitude.requires_grad() && !node.saves_output);
  if (!made) Py_RETURN_NONE;
  return THPVariable_Wrap(
      DoraLinear::apply(of.x, given[8].tensor(), given[9].tensor(), magnitude, of, node, *made));
  END_HANDLE_TH_ERRORS
}

// (out, low, inner or None) without a graph, or None if Python must handle the call.
PyObject* forward(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const Arguments given(arguments, count, kNumOperands + 1);
  if (is_observed() || !are_operands(given)) Py_RETURN_NONE;
  const auto made = compute_without_gil(operands_of(given), given[kNumOperands].is_true());
  if (!made) Py_RETURN_NONE;
  return pybind11::make_tuple(made->out, made->low, made->inner).release().ptr();
  END_HANDLE_TH_ERRORS
}

// The gradients of x, A, B and the magnitude, None where they are not wanted; None instead of the
// tuple if Python must handle the call.
PyObject* gradients(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  constexpr Py_ssize_t kTensors = 9;
  constexpr Py_ssize_t kWanted = kTensors + 1;
  constexpr Py_ssize_t kTypes = kWanted + 4;
  constexpr Py_ssize_t kHasFloatProducts = kTypes + 3;
  const Arguments given(arguments, count, kHasFloatProducts + 1);
  for (Py_ssize_t i = 0; i < kTensors; ++i) {
    if (!given[i].is_none() && !given[i].is_tensor()) Py_RETURN_NONE;
  }
  const Tensor d_out = given[0].tensor();
  if (!given[kTensors].is_float() || !is_plain(d_out) || is_seen(d_out)) {
    Py_RETURN_NONE;
  }
  const auto is_wanted = [&](Py_ssize_t i) { return given[kWanted + i].is_true(); };
  const LinearSaved saved = {
      .scale = given[kTensors].number(),
      .has_float_products = given[kHasFloatProducts].is_true(),
      .wanted = {is_wanted(0), is_wanted(1), is_wanted(2), is_wanted(3)},
      .x = given[1].tensor(),
      .low = given[5].tensor(),
      .inner = given[6].tensor(),
      .gain = given[7].tensor(),
      .divisor = given[8].tensor(),
      .weight = given[2].tensor(),
      .a = given[3].tensor(),
      .b = given[4].tensor(),
      .types = {given[kTypes].type(), given[kTypes + 1].type(), given[kTypes + 2].type()}};
  std::optional<LinearGradients> made;
  {
    const pybind11::gil_scoped_release no_gil;
    made = try_to_differentiate(d_out, saved);
  }
  if (!made) Py_RETURN_NONE;
  const auto& [d_x, d_a, d_b, d_magnitude] = *made;
  return pybind11::make_tuple(d_x, d_a, d_b, d_magnitude).release().ptr();
  END_HANDLE_TH_ERRORS
}

// (divisor, gain), or None if Python must handle the call.
PyObject* divisor_and_gain(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const Arguments given(arguments, count, 5);
  for (Py_ssize_t i = 0; i < 4; ++i) {
    if (!given[i].is_tensor()) Py_RETURN_NONE;
  }
  if (!given[4].is_float()) Py_RETURN_NONE;
  const Tensor weight = given[0].tensor();
  const Tensor lora_A = given[1].tensor();
  const Tensor lora_B = given[2].tensor();
  const Tensor magnitude = given[3].tensor();
  std::optional<std::pair<Tensor, Tensor>> made;
  {
    const pybind11::gil_scoped_release no_gil;
    made = compute_gain(weight, lora_A, lora_B, magnitude, given[4].number());
  }
  if (!made) Py_RETURN_NONE;
  return pybind11::make_tuple(made->first, made->second).release().ptr();
  END_HANDLE_TH_ERRORS
}

// (capsule of CallTable, Python's backward)
PyObject* configure(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 2, "takes a capsule and a function");
  const void* const given = PyCapsule_GetPointer(arguments[0], kCallTableName);
  if (given == nullptr) return nullptr;
  calls = static_cast<const CallTable*>(given);
  differentiate = Py_NewRef(arguments[1]);
  const auto recomputation = pybind11::module_::import("dorajit.norms.recomputation");
  is_under_other_hooks = Py_NewRef(recomputation.attr("is_under_other_hooks").ptr());
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyMethodDef method(const char* name, _PyCFunctionFast function, const char* documentation) {
  // The cast that CPython itself uses to store functions of several signatures in one field.
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
          METH_FASTCALL, documentation};
}

}  // namespace
}  // namespace dorajit::python

PyMODINIT_FUNC PyInit_dorajit_cpp_extension() {
  namespace python = dorajit::python;
  static PyMethodDef methods[] = {
      python::method("configure", python::configure, "(calls, differentiate) -> None"),
      python::method(
          "linear", python::linear,
          "(x, weight, a, b, gain, bias, scale, is_one_launch, lora_A, lora_B, magnitude, "
          "divisor, has_float_products, saves_output) -> Tensor | None"),
      python::method("forward", python::forward,
                     "(x, weight, a, b, gain, bias, scale, is_one_launch, keeps_inner) -> "
                     "(out, low, inner | None) | None"),
      python::method("gradients", python::gradients,
                     "(d_out, x, weight, a, b, low, inner, gain, divisor, scale, 4 flags of wanted "
                     "gradients, 3 element types, has_float_products) -> 4 gradients | None"),
      python::method("divisor_and_gain", python::divisor_and_gain,
                     "(weight, lora_A, lora_B, magnitude, scale) -> tuple[Tensor, Tensor] | None"),
      {}};
  static PyModuleDef module{};
  module.m_base = PyModuleDef_HEAD_INIT;
  module.m_name = "dorajit_cpp_extension";
  module.m_size = -1;
  module.m_methods = methods;
  return PyModule_Create(&module);
}
