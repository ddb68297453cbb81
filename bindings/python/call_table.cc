#include "bindings/python/dorajit/cpp_extension/call_table.h"

#include <dorajit/dorajit.h>

#include <atomic>
#include <cstdint>

#include "bindings/python/eligibility.h"
#include "bindings/python/module_parts.h"
#include "bindings/python/native_call.h"
#include "bindings/python/native_error.h"
#include "bindings/python/native_operation.h"
#include "bindings/python/positional_function.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

std::atomic<bool>& is_allowed() {
  static std::atomic<bool> flag{true};
  return flag;
}

std::int32_t run_call(const CallArguments& call, void** error) {
  if (!is_allowed().load(std::memory_order_relaxed)) return kServedOtherwise;
  dorajit_error* what = nullptr;
  const dorajit_status status = run_with_engine(
      [&](dorajit_engine* engine, dorajit_error** error) {
        return dorajit_launch(engine, call.stream, call.operation->handle, call.tensors,
                              call.operation->info.num_operands, &call.scale, 1, call.workspace,
                              call.workspace_bytes, error);
      },
      &what);
  if (may_be_served_otherwise(status)) {
    dorajit_error_destroy(what);
    return kServedOtherwise;
  }
  *error = what;
  if (status == DORAJIT_OK) call.operation->count_call();
  return status;
}

std::int64_t workspace_bytes(const CallArguments& call) {
  const NativeOperation& operation = *call.operation;
  if (operation.info.may_need_workspace == 0) return 0;
  std::int64_t bytes = 0;
  const bool is_known =
      dorajit_operation_workspace(operation.handle, call.tensors, operation.info.num_operands,
                                  &bytes, nullptr) == DORAJIT_OK;
  return is_known ? bytes : -1;
}

// Runs `body`. False if it threw; a Python error is then set.
template <class Body>
bool without_exceptions(const Body& body) noexcept {
  return with_python_errors([&]() -> PyObject* {
           body();
           return Py_None;
         }) != nullptr;
}

bool current_cuda_stream(std::int32_t device_index, void** stream) {
  return without_exceptions(
      [&] { *stream = current_stream({.device_type = kDLCUDA, .device_id = device_index}); });
}

void raise_outcome(std::int32_t outcome, void* error) {
  without_exceptions([&] { check(outcome, static_cast<dorajit_error*>(error)); });
}

const CallTable& calls() {
  static const CallTable table = {
      .observers = &observers(),
      .find = [](const char* name) { return find_native_operation(name); },
      .run = run_call,
      .workspace_bytes = workspace_bytes,
      .current_stream = current_cuda_stream,
      .raise = raise_outcome};
  return table;
}

}  // namespace

void add_call_table(py::module_& module) {
  module.def(
      "call_table", [] { return py::capsule(&calls(), kCallTableName); },
      "() -> object\n\n"
      "A capsule of the functions that the C++ extension calls (cpp_extension/call_table.h).");
  module.def(
      "allow_call_table", [](bool is_on) { is_allowed().store(is_on, std::memory_order_relaxed); },
      py::arg("is_on"),
      "(bool) -> None\n\n"
      "Sets whether the C++ extension may use kernels; otherwise it leaves its calls to Python.");
}

}  // namespace dorajit::python
