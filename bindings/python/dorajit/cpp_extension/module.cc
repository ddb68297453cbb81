// Calls of the package that PyTorch's C++ interface makes cheaper, for plain tensors and kernels
// that take them as they are: one step from Python to the kernel and its node of autograd's graph.
// Anything else is left to Python. Compiled against the PyTorch that it serves (__init__.py).
#include <c10/core/InferenceMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "call.h"
#include "composition.h"

namespace dorajit::python {
namespace {

PyObject* result_with_node(Composed& call) {
  try {
    const Operands& of = call.operands;
    return THPVariable_Wrap(Composition::apply(of.lora, of.base, of.gain, call)[0]);
  } catch (...) {
    // A hook of saved tensors has raised, as those of checkpoints do when they have what they want.
    // The node still holds the tensors it was to save, of which inner would hold the node.
    call.out.detach_();
    if (call.inner.defined()) call.inner.detach_();
    throw;
  }
}

// The result, or None if Python has to see to it.
PyObject* compose(const Operands& of, bool is_in_place) {
  const Route found = route({&of.lora, &of.base, &of.gain, &of.bias});
  if (found == Route::kElsewhere) Py_RETURN_NONE;
  const bool is_node = found == Route::kNode;
  // The node has no gradient for it.
  const bool is_trained_bias = is_node && of.bias.defined() && of.bias.requires_grad();
  const bool is_frozen = is_in_place && of.lora.is_inference() && !c10::InferenceMode::is_enabled();
  if ((is_node && is_in_place) || is_trained_bias || is_frozen) Py_RETURN_NONE;
  Composed call = {.operands = of, .is_in_place = is_in_place, .is_node = is_node};
  const bool is_done = [&] {
    const pybind11::gil_scoped_release no_gil;
    return compute(call);
  }();
  if (!is_done) Py_RETURN_NONE;
  if (is_node) return result_with_node(call);
  if (is_in_place) call.out.unsafeGetTensorImpl()->bump_version();
  return THPVariable_Wrap(call.out);
}

// Whether they are tensors, and not of a subclass, which would have to see the call.
bool are_tensors(PyObject* const* arguments, Py_ssize_t count) {
  return std::all_of(arguments, arguments + count,
                     [](PyObject* one) { return THPVariable_CheckTypeExact(Py_TYPE(one)); });
}

PyObject* compose(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 5, "takes lora, base, gain, scale and whether in place");
  if (!are_tensors(arguments, 3) || !PyFloat_CheckExact(arguments[3])) Py_RETURN_NONE;
  const int is_in_place = PyObject_IsTrue(arguments[4]);
  if (is_in_place < 0) return nullptr;
  return compose({.is_residual = false,
                  .scale = PyFloat_AS_DOUBLE(arguments[3]),
                  .lora = THPVariable_Unpack(arguments[0]),
                  .base = THPVariable_Unpack(arguments[1]),
                  .gain = THPVariable_Unpack(arguments[2]),
                  .bias = {}},
                 is_in_place == 1);
  END_HANDLE_TH_ERRORS
}

PyObject* compose_residual(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 5, "takes lora, result, gain, bias and scale");
  const bool has_bias = arguments[3] != Py_None;
  if (!are_tensors(arguments, has_bias ? 4 : 3) || !PyFloat_CheckExact(arguments[4])) {
    Py_RETURN_NONE;
  }
  return compose({.is_residual = true,
                  .scale = PyFloat_AS_DOUBLE(arguments[4]),
                  .lora = THPVariable_Unpack(arguments[0]),
                  .base = THPVariable_Unpack(arguments[1]),
                  .gain = THPVariable_Unpack(arguments[2]),
                  .bias = has_bias ? THPVariable_Unpack(arguments[3]) : Tensor()},
                 false);
  END_HANDLE_TH_ERRORS
}

// (capsule of CallTable, Python's backward)
PyObject* configure(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 2, "takes a capsule and a function");
  const void* const given = PyCapsule_GetPointer(arguments[0], kCallTableName);
  if (given == nullptr) return nullptr;
  calls = static_cast<const CallTable*>(given);
  operations = {.compose = calls->find("compose"),
                .compose_inner = calls->find("compose_inner"),
                .compose_residual = calls->find("compose_residual"),
                .backward = calls->find("backward"),
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
      python::method("compose", python::compose,
                     "(lora, base, gain, scale, inplace) -> Tensor | None"),
      python::method("compose_residual", python::compose_residual,
                     "(lora, result, gain, bias, scale) -> Tensor | None"),
      {}};
  static PyModuleDef module{};
  module.m_base = PyModuleDef_HEAD_INIT;
  module.m_name = "dorajit_cpp_extension";
  module.m_size = -1;
  module.m_methods = methods;
  return PyModule_Create(&module);
}
