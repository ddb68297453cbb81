#include "bindings/python/node_calls.h"

#include <dlpack/dlpack.h>
#include <dorajit/dorajit.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include "bindings/python/dorajit/autograd_node/calls.h"
#include "bindings/python/engines.h"
#include "bindings/python/native_call.h"
#include "bindings/python/native_error.h"
#include "bindings/python/without_gil.h"
#include "runtime/base/settings.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

std::atomic<bool>& is_allowed() {
  static std::atomic<bool> flag{true};
  return flag;
}

DLTensor to_dl(const NodeTensor& tensor) {
  DLTensor dl{};
  dl.data = tensor.data;
  dl.device = {.device_type = static_cast<DLDeviceType>(tensor.device_type),
               .device_id = tensor.device_index};
  dl.ndim = tensor.dims;
  dl.dtype = {.code = tensor.type_code, .bits = tensor.type_bits, .lanes = 1};
  // DLPack has no const; neither is written.
  dl.shape = const_cast<std::int64_t*>(tensor.shape);
  dl.strides = const_cast<std::int64_t*>(tensor.strides);
  return dl;
}

// The tensors of a call, null for those that it does without.
class CallTensors {
 public:
  explicit CallTensors(const NodeCall& call) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const NodeTensor* const tensor = call.tensors[i];
      if (tensor == nullptr) continue;
      tensors_[i] = to_dl(*tensor);
      pointers_[i] = &tensors_[i];
    }
  }
  CallTensors(const CallTensors&) = delete;
  CallTensors& operator=(const CallTensors&) = delete;

  const DLTensor* operator[](std::size_t i) const { return pointers_[i]; }

 private:
  std::array<DLTensor, kMostNodeTensors> tensors_{};
  std::array<const DLTensor*, kMostNodeTensors> pointers_{};
};

std::int32_t counted_as(NodeOperation operation) {
  switch (operation) {
    case NodeOperation::kCompose:
      return DORAJIT_OP_COMPOSE;
    case NodeOperation::kComposeInner:
      return DORAJIT_OP_COMPOSE_INNER;
    case NodeOperation::kComposeResidual:
      return DORAJIT_OP_COMPOSE_RESIDUAL;
    case NodeOperation::kBackward:
      return DORAJIT_OP_BACKWARD;
    case NodeOperation::kResidualBackward:
      return DORAJIT_OP_RESIDUAL_BACKWARD;
  }
  std::terminate();
}

dorajit_status enqueue(dorajit_engine* engine, const NodeCall& call, dorajit_error** error) {
  const CallTensors t(call);
  switch (call.operation) {
    case NodeOperation::kCompose:
      return dorajit_compose(engine, call.stream, t[0], t[1], t[2], call.scale, t[3], error);
    case NodeOperation::kComposeInner:
      return dorajit_compose_inner(engine, call.stream, t[0], t[1], t[2], call.scale, t[3], t[4],
                                   error);
    case NodeOperation::kComposeResidual:
      return dorajit_compose_residual(engine, call.stream, t[0], t[1], t[2], t[3], call.scale, t[4],
                                      t[5], error);
    case NodeOperation::kBackward:
      return dorajit_backward(engine, call.stream, t[0], t[1], t[2], call.scale, t[3], t[4], t[5],
                              call.workspace, call.workspace_bytes, error);
    case NodeOperation::kResidualBackward:
      return dorajit_residual_backward(engine, call.stream, t[0], t[1], t[2], call.scale, t[3],
                                       t[4], t[5], call.workspace, call.workspace_bytes, error);
  }
  std::terminate();
}

std::int32_t run_without_gil(const NodeCall& call, void** error) {
  if (!is_allowed().load(std::memory_order_relaxed)) return kNodeServedOtherwise;
  dorajit_engine* engine = nullptr;
  dorajit_error* what = nullptr;
  dorajit_status status = engines().current(&engine, &what);
  if (status == DORAJIT_OK) status = enqueue(engine, call, &what);
  if (may_be_served_otherwise(status)) {
    dorajit_error_destroy(what);
    return kNodeServedOtherwise;
  }
  *error = what;
  if (status == DORAJIT_OK) count_call(counted_as(call.operation));
  return status;
}

std::int32_t run_with_gil(const NodeCall& call, void** error) {
  return without_gil([&] { return run_without_gil(call, error); });
}

std::int64_t workspace_bytes(const NodeTensor& d_out, const NodeTensor& gain) {
  const DLTensor first = to_dl(d_out);
  const DLTensor second = to_dl(gain);
  std::int64_t bytes = 0;
  const bool is_known = dorajit_backward_workspace(&first, &second, &bytes, nullptr) == DORAJIT_OK;
  return is_known ? bytes : -1;
}

void raise_outcome(std::int32_t outcome, void* error) {
  try {
    check(outcome, static_cast<dorajit_error*>(error));
  } catch (py::error_already_set& raised) {
    raised.restore();
  } catch (const std::exception& other) {
    PyErr_SetString(PyExc_RuntimeError, other.what());
  }
}

constexpr NodeCalls kCalls = {.run_with_gil = run_with_gil,
                              .run_without_gil = run_without_gil,
                              .workspace_bytes = workspace_bytes,
                              .raise = raise_outcome};

std::string cache_folder() {
  const Result<Settings> settings = Settings::from_environment();
  return settings ? settings->cache_dir : std::string();
}

}  // namespace

void add_node_calls(py::module_& module) {
  module.def(
      "node_calls", [] { return py::capsule(&kCalls, kNodeCallsName); },
      "() -> object\n\n"
      "A capsule of what the autograd node calls (autograd_node/calls.h).");
  module.def(
      "allow_node_calls", [](bool is_on) { is_allowed().store(is_on, std::memory_order_relaxed); },
      py::arg("is_on"),
      "(bool) -> None\n\n"
      "Whether the autograd node may use kernels; without, it leaves its calls to Python.");
  module.def("cache_folder", &cache_folder,
             "() -> str\n\n"
             "Where compiled code is kept; empty if nowhere, or if the environment is wrong.");
}

}  // namespace dorajit::python
