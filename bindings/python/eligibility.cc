#include "bindings/python/eligibility.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/python/positional_function.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

// What of PyTorch tells it, and the answers. Borrowed for the life of the process.
struct Eligibility {
  std::array<PyObject*, 2> plain_types{};  // torch.Tensor and torch.nn.Parameter
  PyObject* is_grad_enabled = nullptr;
  PyObject* included_keys = nullptr;  // the set of keys that this thread adds to each dispatch
  std::uint64_t observers = 0;        // those in it that stand for somebody
  PyObject* forward_ad = nullptr;     // the variables of torch.autograd.forward_ad
};

Eligibility& kept() {
  static auto* const eligibility = new Eligibility;
  return *eligibility;
}

py::object result_of(PyObject* function) {
  return py::reinterpret_steal<py::object>(PyObject_CallNoArgs(function));
}

bool is_plain(PyObject* tensor) {
  return std::ranges::find(kept().plain_types, reinterpret_cast<PyObject*>(Py_TYPE(tensor))) !=
         kept().plain_types.end();
}

// Whether forward-mode differentiation is on; which tensors it follows, eligibility.py finds out.
bool has_forward_level() {
  static PyObject* const name = PyUnicode_InternFromString("_current_level");
  PyObject* const level = PyDict_GetItem(kept().forward_ad, name);
  return level != nullptr && PyLong_AsLong(level) >= 0;
}

// Whether an observer's key is among those of this thread; below 0: a Python error is set.
int is_observer_included() {
  static PyObject* const raw_repr = PyUnicode_InternFromString("raw_repr");
  const py::object keys = result_of(kept().included_keys);
  if (!keys) return -1;
  const auto bits =
      py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(keys.ptr(), raw_repr));
  if (!bits) return -1;
  const std::uint64_t found = PyLong_AsUnsignedLongLong(bits.ptr());
  if (found == static_cast<std::uint64_t>(-1) && PyErr_Occurred() != nullptr) return -1;
  return (found & kept().observers) != 0 ? 1 : 0;
}

// Whether autograd follows one of the tensors; below 0: a Python error is set.
int builds_graph(std::span<PyObject* const> tensors) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  const py::object is_enabled = result_of(kept().is_grad_enabled);
  if (!is_enabled) return -1;
  if (is_enabled.ptr() != Py_True) return 0;
  for (PyObject* const tensor : tensors) {
    const auto found = py::reinterpret_steal<py::object>(PyObject_GetAttr(tensor, requires_grad));
    if (!found) return -1;
    if (found.ptr() == Py_True) return 1;
  }
  return 0;
}

// 1 or 0; below 0: a Python error is set.
int is_node(std::span<PyObject* const> tensors, PyObject* scale) {
  if (!PyFloat_CheckExact(scale) || !std::ranges::all_of(tensors, is_plain)) return 0;
  if (has_forward_level()) return 0;
  const int is_observed = is_observer_included();
  return is_observed > 0 ? 0 : is_observed < 0 ? -1 : 1;
}

// As is_node, of the arguments of a call, the scale last, and without a graph if `is_alone`.
PyObject* judge(PyObject* const* arguments, Py_ssize_t count, bool is_alone) noexcept {
  if (count < 2) return PyErr_Format(PyExc_TypeError, "takes tensors and a scale");
  const std::span tensors(arguments, static_cast<std::size_t>(count - 1));
  int found = is_node(tensors, arguments[count - 1]);
  if (found > 0 && is_alone) {
    const int has_graph = builds_graph(tensors);
    found = has_graph > 0 ? 0 : has_graph < 0 ? -1 : 1;
  }
  return found < 0 ? nullptr : Py_NewRef(found > 0 ? Py_True : Py_False);
}

PyObject* is_one_node(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  return judge(arguments, count, false);
}

PyObject* is_one_launch(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  return judge(arguments, count, true);
}

bool is_observed() {
  const int found = is_observer_included();
  if (found < 0) throw py::error_already_set();
  return found != 0;
}

void configure_eligibility(const py::type& tensor, const py::type& parameter,
                           const py::object& is_grad_enabled, const py::object& included_keys,
                           std::uint64_t observers, const py::dict& forward_ad) {
  kept() = {.plain_types = {tensor.inc_ref().ptr(), parameter.inc_ref().ptr()},
            .is_grad_enabled = is_grad_enabled.inc_ref().ptr(),
            .included_keys = included_keys.inc_ref().ptr(),
            .observers = observers,
            .forward_ad = forward_ad.inc_ref().ptr()};
}

}  // namespace

void add_eligibility(py::module_& module) {
  using py::arg;
  static std::array methods = {
      fast_method(
          "is_one_node", is_one_node,
          "is_one_node($module, /, *tensors_and_scale)\n--\n\n"
          "(*Any) -> bool\n\n"
          "Whether nobody but autograd observes an eager call of plain tensors and a float."),
      fast_method("is_one_launch", is_one_launch,
                  "is_one_launch($module, /, *tensors_and_scale)\n--\n\n"
                  "(*Any) -> bool\n\n"
                  "The same, and that no graph is built."),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
  module.def("is_observed", &is_observed,
             "() -> bool\n\n"
             "Whether a mode, a tracer or a transform of PyTorch sees operations one by one.");
  module.def(
      "configure_eligibility", &configure_eligibility, arg("tensor"), arg("parameter"),
      arg("is_grad_enabled"), arg("included_keys"), arg("observers"), arg("forward_ad"),
      "(type, type, Callable[[], bool], Callable[[], object], int, dict[str, Any]) -> None\n\n"
      "Tells the extension how to find the route of a call: the plain types of tensors; whether a "
      "graph is built; the set of keys that this thread includes, and those among them that stand "
      "for an observer; the variables of torch.autograd.forward_ad.");
}

const std::uint64_t& observers() { return kept().observers; }

}  // namespace dorajit::python
