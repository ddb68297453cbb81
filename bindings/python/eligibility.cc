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
  // Route.EAGER, Route.EAGER_WITH_GRAPH, and what tells the other routes apart.
  PyObject* eager = nullptr;
  PyObject* eager_with_graph = nullptr;
  PyObject* observed_route = nullptr;
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

// Below zero where there is none.
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

PyObject* route(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count < 2) return PyErr_Format(PyExc_TypeError, "takes tensors and a scale");
  const std::span tensors(arguments, static_cast<std::size_t>(count - 1));
  int is_observed = 1;
  if (PyFloat_CheckExact(arguments[count - 1]) && std::ranges::all_of(tensors, is_plain)) {
    is_observed = has_forward_level() ? 1 : is_observer_included();
    if (is_observed < 0) return nullptr;
  }
  if (is_observed != 0) {
    return PyObject_Vectorcall(kept().observed_route, arguments, static_cast<std::size_t>(count),
                               nullptr);
  }
  const int has_graph = builds_graph(tensors);
  if (has_graph < 0) return nullptr;
  return Py_NewRef(has_graph != 0 ? kept().eager_with_graph : kept().eager);
}

bool is_observed() {
  const int found = is_observer_included();
  if (found < 0) throw py::error_already_set();
  return found != 0;
}

void configure_eligibility(const py::type& tensor, const py::type& parameter,
                           const py::object& is_grad_enabled, const py::object& included_keys,
                           std::uint64_t observers, const py::dict& forward_ad,
                           const py::object& eager, const py::object& eager_with_graph,
                           const py::object& observed_route) {
  kept() = {.plain_types = {tensor.inc_ref().ptr(), parameter.inc_ref().ptr()},
            .is_grad_enabled = is_grad_enabled.inc_ref().ptr(),
            .included_keys = included_keys.inc_ref().ptr(),
            .observers = observers,
            .forward_ad = forward_ad.inc_ref().ptr(),
            .eager = eager.inc_ref().ptr(),
            .eager_with_graph = eager_with_graph.inc_ref().ptr(),
            .observed_route = observed_route.inc_ref().ptr()};
}

}  // namespace

void add_eligibility(py::module_& module) {
  using py::arg;
  static std::array methods = {
      fast_method("route", route,
                  "route($module, /, *tensors_and_scale)\n--\n\n"
                  "(*Any) -> Any\n\n"
                  "The Route of an eager call with these arguments."),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
  module.def("is_observed", &is_observed,
             "() -> bool\n\n"
             "Whether a mode, a tracer or a transform of PyTorch sees operations one by one.");
  module.def(
      "configure_eligibility", &configure_eligibility, arg("tensor"), arg("parameter"),
      arg("is_grad_enabled"), arg("included_keys"), arg("observers"), arg("forward_ad"),
      arg("eager"), arg("eager_with_graph"), arg("observed_route"),
      "(type, type, Callable[[], bool], Callable[[], object], int, dict[str, Any], object, object, "
      "Callable[..., object]) -> None\n\n"
      "Tells the extension how to find the route of a call: the plain types of tensors; whether a "
      "graph is built; the set of keys that this thread includes, and those among them that stand "
      "for an observer; the variables of torch.autograd.forward_ad; the routes of calls that "
      "nobody "
      "observes; a function for the route of the others.");
}

}  // namespace dorajit::python
