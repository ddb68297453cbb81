#include "bindings/python/eligibility.h"

#include <dorajit/own_kernel.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/python/module_parts.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

// Capabilities are part of the number, so that no answer is kept for a device of this machine
// (linear.cc, Question).
constexpr std::int32_t kFirstDevice = 1 << 16;

void record(const py::object& note, const py::object& fake_type, std::int32_t capability) {
  Recording& one = recording();
  Py_XDECREF(one.note);
  Py_XDECREF(one.fake_type);
  one = {.device = {.device_type = capability > 0 ? kDLCUDA : kDLCPU,
                    .device_id = capability > 0 ? kFirstDevice + capability : 0}};
  if (note.is_none()) return;
  one.note = note.inc_ref().ptr();
  one.fake_type = fake_type.inc_ref().ptr();
}

// A function of PyTorch, with its argument if it takes one, that returns `quiet` while there is no
// observer of one kind.
struct Sign {
  PyObject* function = nullptr;
  PyObject* argument = nullptr;
  PyObject* quiet = nullptr;
};

// PyTorch's objects by which observers are detected. References are kept for the life of the
// process.
struct Eligibility {
  std::array<PyObject*, 2> plain_types{};  // torch.Tensor and torch.nn.Parameter
  PyObject* is_grad_enabled = nullptr;
  std::array<Sign, 4> signs{};
  PyObject* forward_ad = nullptr;  // the variables of torch.autograd.forward_ad
};

Eligibility& kept() {
  static auto* const eligibility = new Eligibility;
  return *eligibility;
}

// Whether a level of forward-mode differentiation is active; eligibility.py finds the tensors with
// tangents.
bool has_forward_level() {
  static PyObject* const name = PyUnicode_InternFromString("_current_level");
  PyObject* const level = PyDict_GetItem(kept().forward_ad, name);
  return level != nullptr && PyLong_AsLong(level) >= 0;
}

// 1 if something observes the operations of this thread, else 0. Negative if a Python error is set.
int has_observer() {
  for (const Sign& sign : kept().signs) {
    const auto found = py::reinterpret_steal<py::object>(
        sign.argument == nullptr ? PyObject_CallNoArgs(sign.function)
                                 : PyObject_CallOneArg(sign.function, sign.argument));
    if (!found) return -1;
    if (found.ptr() != sign.quiet) return 1;
  }
  return 0;
}

// 1 if autograd records a call with these tensors, else 0. Negative if a Python error is set.
int builds_graph(std::span<PyObject* const> tensors) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  const auto is_enabled =
      py::reinterpret_steal<py::object>(PyObject_CallNoArgs(kept().is_grad_enabled));
  if (!is_enabled) return -1;
  if (is_enabled.ptr() != Py_True) return 0;
  for (PyObject* const tensor : tensors) {
    const auto found = py::reinterpret_steal<py::object>(PyObject_GetAttr(tensor, requires_grad));
    if (!found) return -1;
    if (found.ptr() == Py_True) return 1;
  }
  return 0;
}

PyObject* who_sees_call(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count < 2) return PyErr_Format(PyExc_TypeError, "who_sees takes tensors and a scale");
  const auto tensors = static_cast<std::size_t>(count - 1);
  const int found = who_sees({arguments, tensors}, {arguments + tensors, 1});
  return found < 0 ? nullptr : PyLong_FromLong(found);
}

bool is_observed() {
  const int found = has_observer();
  if (found < 0) throw py::error_already_set();
  return found != 0;
}

void configure_eligibility(const py::type& tensor, const py::type& parameter,
                           const py::object& is_grad_enabled, const py::list& signs,
                           const py::dict& forward_ad) {
  kept() = {.plain_types = {tensor.inc_ref().ptr(), parameter.inc_ref().ptr()},
            .is_grad_enabled = is_grad_enabled.inc_ref().ptr(),
            .forward_ad = forward_ad.inc_ref().ptr()};
  for (std::size_t i = 0; i < kept().signs.size(); ++i) {
    const py::tuple sign = signs[i];  // (function, quiet) or (function, quiet, argument)
    kept().signs[i] = {.function = py::object(sign[0]).release().ptr(),
                       .argument = sign.size() > 2 ? py::object(sign[2]).release().ptr() : nullptr,
                       .quiet = py::object(sign[1]).release().ptr()};
  }
}

}  // namespace

dorajit_status note_problem(const dorajit_operation* operation,
                            std::span<const DLTensor* const> tensors,
                            std::span<const double> scalars, const char* json,
                            dorajit_error*& error) {
  std::array<char, 512> text{};
  const dorajit_status status = dorajit_problem(
      operation, tensors.data(), static_cast<std::int32_t>(tensors.size()), scalars.data(),
      static_cast<std::int32_t>(scalars.size()), text.data(), text.size(), &error);
  if (status == DORAJIT_OK && text[0] != '\0') {
    const py::object problem = owned(PyUnicode_FromString(text.data()));
    const py::object of_kernel = json == nullptr ? py::none() : owned(PyUnicode_FromString(json));
    owned(PyObject_CallFunctionObjArgs(recording().note, problem.ptr(), of_kernel.ptr(), nullptr));
  }
  return status;
}

void add_recording(py::module_& module) {
  module.def("record", &record, py::arg("note"), py::arg("fake_type"), py::arg("capability"),
             "From now on, calls over tensors of that type launch nothing: note gets their problem "
             "and, for an own kernel, its description as JSON. None ends that. capability: ten "
             "times the major number and the minor one of a GPU; 0: the CPU.");
}

void add_eligibility(py::module_& module) {
  using py::arg;
  static std::array methods = {
      fast_method(
          "who_sees", who_sees_call,
          "who_sees($module, /, *tensors_and_scale)\n--\n\n"
          "The observer of an eager call with plain tensors and a float: 1 none, 2 only autograd, "
          "0 another one. Also 0 if a tensor is not plain or the scale is not a float."),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
  module.def("is_observed", &is_observed,
             "Whether a mode, a tracer or a transform of PyTorch observes single operations.");
  module.def(
      "configure_eligibility", &configure_eligibility, arg("tensor"), arg("parameter"),
      arg("is_grad_enabled"), arg("signs"), arg("forward_ad"),
      "Passes PyTorch's objects by which the route of a call is found. signs: for each kind of "
      "observer a function, its result while there is none, and its argument if it takes one.");
}

bool is_plain(PyObject* tensor) {
  return is_fake(tensor) ||
         std::ranges::find(kept().plain_types, reinterpret_cast<PyObject*>(Py_TYPE(tensor))) !=
             kept().plain_types.end();
}

int who_sees(std::span<PyObject* const> tensors, std::span<PyObject* const> scalars) {
  const auto is_float = [](PyObject* scalar) { return PyFloat_CheckExact(scalar) != 0; };
  if (!std::ranges::all_of(scalars, is_float) || !std::ranges::all_of(tensors, is_plain)) {
    return kSomebody;
  }
  if (has_forward_level()) return kSomebody;
  const int is_observed = has_observer();
  if (is_observed != 0) return is_observed < 0 ? -1 : kSomebody;
  const int has_graph = builds_graph(tensors);
  return has_graph < 0 ? -1 : has_graph > 0 ? kAutograd : kNobody;
}

}  // namespace dorajit::python
