#include "bindings/python/recording.h"

#include <dorajit/own_kernel.h>

#include <array>

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
             "(Callable[[str, str | None], None] | None, type | None, int) -> None\n\n"
             "From now on, calls over tensors of that type launch nothing: note gets their problem "
             "and, for an own kernel, its description as JSON. None ends that. capability: ten "
             "times the major number and the minor one of a GPU; 0: the CPU.");
}

}  // namespace dorajit::python
