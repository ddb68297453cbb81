// The layer's node of autograd's graph in C++, for plain tensors and kernels that take them as they
// are. Anything else is left to Python. Compiled against the PyTorch that it serves (__init__.py).
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "call.h"
#include "linear.h"
#include "norms.h"

namespace dorajit::python {
namespace {

bool is_parameter(PyObject* tensor) {
  return Py_TYPE(tensor) == reinterpret_cast<PyTypeObject*>(ParameterClass);
}

// Whether they are tensors, and not of a subclass, which would have to see the call.
bool are_tensors(PyObject* const* arguments, Py_ssize_t count) {
  return std::all_of(arguments, arguments + count,
                     [](PyObject* one) { return THPVariable_CheckTypeExact(Py_TYPE(one)); });
}

// The arguments of linear(), in their order.
enum Argument {
  kX,
  kWeight,
  kLoraA,
  kLoraB,
  kMagnitude,
  kDivisor,
  kGain,
  kNumTensors,  // that are never left out
  kBias = kNumTensors,
  kScale,
  kIsNode,
  kIsOneLaunch,
  kHasFloatProducts,
  kNumArguments,
};

// The output, or None if Python has to see to the call.
PyObject* linear(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == kNumArguments, "takes ", int{kNumArguments}, " arguments");
  const bool has_bias = arguments[kBias] != Py_None;
  if (!are_tensors(arguments, has_bias ? kNumTensors + 1 : kNumTensors) ||
      !PyFloat_CheckExact(arguments[kScale])) {
    Py_RETURN_NONE;
  }
  const auto tensor = [&](Argument which) { return THPVariable_Unpack(arguments[which]); };
  const LinearCall call = {
      .x = tensor(kX),
      .weight = tensor(kWeight),
      .lora_A = tensor(kLoraA),
      .lora_B = tensor(kLoraB),
      .magnitude = tensor(kMagnitude),
      .divisor = tensor(kDivisor),
      .gain = tensor(kGain),
      .bias = has_bias ? tensor(kBias) : Tensor(),
      .scale = PyFloat_AS_DOUBLE(arguments[kScale]),
      .is_one_launch = arguments[kIsOneLaunch] == Py_True,
      .has_float_products = arguments[kHasFloatProducts] == Py_True,
      .held = {is_parameter(arguments[kWeight]), is_parameter(arguments[kLoraA]),
               is_parameter(arguments[kLoraB])}};
  const bool is_node = arguments[kIsNode] == Py_True;
  std::optional<LinearResult> made;
  {
    const pybind11::gil_scoped_release no_gil;
    made = compute_linear(call, is_node && call.magnitude.requires_grad());
  }
  if (!made) Py_RETURN_NONE;
  if (!is_node) return THPVariable_Wrap(made->out);
  return THPVariable_Wrap(
      DoraLinear::apply(call.x, call.lora_A, call.lora_B, call.magnitude, call, *made));
  END_HANDLE_TH_ERRORS
}

// (divisor, gain), or None if Python has to see to the call.
PyObject* divisor_and_gain(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 5, "takes weight, lora_A, lora_B, magnitude and scale");
  if (!are_tensors(arguments, 4) || !PyFloat_CheckExact(arguments[4])) Py_RETURN_NONE;
  const Tensor& weight = THPVariable_Unpack(arguments[0]);
  const Tensor& lora_A = THPVariable_Unpack(arguments[1]);
  const Tensor& lora_B = THPVariable_Unpack(arguments[2]);
  const Tensor& magnitude = THPVariable_Unpack(arguments[3]);
  std::optional<std::pair<Tensor, Tensor>> made;
  {
    const pybind11::gil_scoped_release no_gil;
    made = compute_gain(weight, lora_A, lora_B, magnitude, PyFloat_AS_DOUBLE(arguments[4]));
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
  operations = {.weight_norm = calls->find("weight_norm"),
                .compose_low_rank = calls->find("compose_low_rank"),
                .compose_residual = calls->find("compose_residual"),
                .residual_backward = calls->find("residual_backward")};
  differentiate = Py_NewRef(arguments[1]);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyMethodDef method(const char* name, _PyCFunctionFast function, const char* documentation) {
  // Python's own way to keep functions of several signatures in one field.
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
          METH_FASTCALL, documentation};
}

}  // namespace
}  // namespace dorajit::python

PyMODINIT_FUNC PyInit_dorajit_cpp_extension() {
  namespace python = dorajit::python;
  static PyMethodDef methods[] = {
      python::method("configure", python::configure, "(calls, differentiate) -> None"),
      python::method("linear", python::linear,
                     "(x, weight, lora_A, lora_B, magnitude, divisor, gain, bias, scale, is_node, "
                     "is_one_launch, has_float_products) -> Tensor | None"),
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
