#include "bindings/python/call_route.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "bindings/python/positional_function.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

CallRoute& kept() {
  static auto* const route = new CallRoute;
  return *route;
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

}  // namespace

Route route_of(std::span<PyObject* const> tensors, PyObject* scale) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  if (!PyFloat_CheckExact(scale) || !std::ranges::all_of(tensors, is_plain)) return kIndirect;
  const py::object modes = result_of(kept().mode_count);
  const auto early_modes = py::reinterpret_steal<py::object>(
      PyObject_CallOneArg(kept().is_key_included, kept().pre_dispatch));
  const py::object tracer = result_of(kept().tracing_state);
  const py::object level = result_of(kept().transform_level);
  const py::object builds_graph = result_of(kept().is_grad_enabled);
  if (!modes || !early_modes || !tracer || !level || !builds_graph) return kFailed;
  if (PyLong_AsLong(modes.ptr()) != 0 || early_modes.ptr() == Py_True) return kIndirect;
  if (!tracer.is_none() || !level.is_none()) return kIndirect;
  if (has_forward_level()) return kIndirect;
  if (builds_graph.ptr() != Py_True) return kDirect;
  for (PyObject* const tensor : tensors) {
    const auto requires_it =
        py::reinterpret_steal<py::object>(PyObject_GetAttr(tensor, requires_grad));
    if (!requires_it) return kFailed;
    if (requires_it.ptr() == Py_True) return kWithGraph;
  }
  return kDirect;
}

namespace {

PyObject* route(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count < 2) return PyErr_Format(PyExc_TypeError, "takes tensors and a scale");
  const Py_ssize_t tensors = count - 1;
  const Route found = route_of({arguments, static_cast<std::size_t>(tensors)}, arguments[tensors]);
  return found == kFailed ? nullptr : PyLong_FromLong(found);
}

void configure_route(const py::type& tensor, const py::type& parameter,
                     const py::object& mode_count, const py::object& is_key_included,
                     const py::object& pre_dispatch, const py::object& tracing_state,
                     const py::object& transform_level, const py::object& is_grad_enabled,
                     const py::dict& forward_ad) {
  kept() = {.plain_types = {tensor.inc_ref().ptr(), parameter.inc_ref().ptr()},
            .mode_count = mode_count.inc_ref().ptr(),
            .is_key_included = is_key_included.inc_ref().ptr(),
            .tracing_state = tracing_state.inc_ref().ptr(),
            .transform_level = transform_level.inc_ref().ptr(),
            .is_grad_enabled = is_grad_enabled.inc_ref().ptr(),
            .pre_dispatch = pre_dispatch.inc_ref().ptr(),
            .forward_ad = forward_ad.inc_ref().ptr()};
}

}  // namespace

void add_call_route(py::module_& module) {
  using py::arg;
  static std::array methods = {
      fast_method("route", route,
                  "route($module, /, *tensors_and_scale)\n--\n\n"
                  "(*Any) -> int\n\n"
                  "1 if nothing but the library has a say in a call with these arguments, 2 if "
                  "autograd has as well, else 0."),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
  module.def(
      "configure_route", &configure_route, arg("tensor"), arg("parameter"), arg("mode_count"),
      arg("is_key_included"), arg("pre_dispatch"), arg("tracing_state"), arg("transform_level"),
      arg("is_grad_enabled"), arg("forward_ad"),
      "(type, type, Callable[[], int], Callable[[object], bool], object, "
      "Callable[[], object], Callable[[], object], Callable[[], bool], dict[str, Any]) "
      "-> None\n\n"
      "Tells the extension who may have a say: the plain types of tensors; functions for "
      "the number of dispatch modes, whether the dispatcher includes a key; the key of modes "
      "before autograd; functions for the tracer, the level of transforms, whether a graph "
      "is built; the variables of torch.autograd.forward_ad.");
}

}  // namespace dorajit::python
