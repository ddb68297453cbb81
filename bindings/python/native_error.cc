#include "bindings/python/native_error.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

py::handle& factory() {
  static py::handle kept;
  return kept;
}

}  // namespace

void set_exception_factory(const py::function& made_by) { factory() = made_by.inc_ref(); }

void raise(dorajit_status status, const std::string& message, const std::string& log) {
  if (!factory()) throw std::runtime_error(message);
  const py::object exception = factory()(status, message, log);
  PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
  throw py::error_already_set();
}

void check(dorajit_status status, dorajit_error* error) {
  if (status == DORAJIT_OK) return;
  const std::string message = dorajit_error_message(error);
  const std::string log = dorajit_error_log(error);
  dorajit_error_destroy(error);
  raise(status, message, log);
}

}  // namespace dorajit::python
