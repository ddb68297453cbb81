// The extension module dorajit._native.
#include <dorajit/dorajit.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <format>
#include <string>
#include <utility>

#include "bindings/python/eligibility.h"
#include "bindings/python/module_parts.h"
#include "bindings/python/native_call.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

constexpr std::array<std::pair<const char*, std::int64_t dorajit_statistics::*>, 7> kCounters = {{
    {"launches", &dorajit_statistics::launches},
    {"compilations", &dorajit_statistics::compilations},
    {"artifact_hits", &dorajit_statistics::artifact_hits},
    {"builtin_kernels", &dorajit_statistics::builtin_kernels},
    {"tuned_problems", &dorajit_statistics::tuned_problems},
    {"trials", &dorajit_statistics::trials},
    {"renewed_plans", &dorajit_statistics::renewed_plans},
}};

void append_plans(const dorajit_engine* engine, py::list& plans) {
  for (std::int64_t i = 0;; ++i) {
    dorajit_explanation plan{};
    plan.struct_size = sizeof plan;
    check([&](dorajit_error** error) { return dorajit_explain_at(engine, i, &plan, error); });
    if (*plan.problem == '\0') return;
    py::dict one = described(plan);
    one["device"] = plan.device.device_type == kDLCPU
                        ? std::string("cpu")
                        : std::format("cuda:{}", plan.device.device_id);
    plans.append(std::move(one));
  }
}

py::dict statistics() {
  std::array<std::int64_t, kCounters.size()> totals{};
  py::list plans;
  for (const dorajit_engine* const engine : engines().created()) {
    dorajit_statistics one{};
    one.struct_size = sizeof one;
    check([&](dorajit_error** error) { return dorajit_engine_statistics(engine, &one, error); });
    for (std::size_t i = 0; i < totals.size(); ++i) totals[i] += one.*kCounters[i].second;
    append_plans(engine, plans);
  }
  py::dict found;
  for (std::size_t i = 0; i < totals.size(); ++i) found[kCounters[i].first] = totals[i];
  found["plans"] = plans;
  return found;
}

void configure(const py::sequence& dtypes, const py::sequence& complex_parts,
               const py::object& byte_type, const py::object& empty_like, const py::object& is_neg,
               const py::object& is_inference, const py::object& in_inference,
               const py::object& count_change, const py::object& current_stream,
               const py::object& exchange_api, const py::function& make_exception) {
  constexpr std::uint8_t kBoolCode = 6;         // kDLBool, which DLPack has since 0.8
  constexpr std::uint8_t kFloat8E4m3Code = 10;  // kDLFloat8_e4m3fn, since 1.1
  constexpr std::uint8_t kFloat8E5m2Code = 12;
  constexpr std::array<DLDataType, Torch::kTypes> kTypes = {{
      {.code = kDLFloat, .bits = 32, .lanes = 1},
      {.code = kDLFloat, .bits = 16, .lanes = 1},
      {.code = kDLBfloat, .bits = 16, .lanes = 1},
      {.code = kDLFloat, .bits = 64, .lanes = 1},
      {.code = kDLInt, .bits = 8, .lanes = 1},
      {.code = kDLInt, .bits = 16, .lanes = 1},
      {.code = kDLInt, .bits = 32, .lanes = 1},
      {.code = kDLInt, .bits = 64, .lanes = 1},
      {.code = kDLUInt, .bits = 8, .lanes = 1},
      {.code = kBoolCode, .bits = 8, .lanes = 1},
      {.code = kDLUInt, .bits = 16, .lanes = 1},
      {.code = kDLUInt, .bits = 32, .lanes = 1},
      {.code = kDLUInt, .bits = 64, .lanes = 1},
      {.code = kFloat8E4m3Code, .bits = 8, .lanes = 1},
      {.code = kFloat8E5m2Code, .bits = 8, .lanes = 1},
  }};
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    torch().types[i] = {.dtype = py::object(dtypes[i]).release().ptr(),
                        .dl = kTypes[i],
                        .may_be_negated = complex_parts.contains(dtypes[i])};
  }
  torch().byte_type = byte_type.inc_ref().ptr();
  torch().empty_like = empty_like.inc_ref().ptr();
  torch().is_neg = is_neg.inc_ref().ptr();
  torch().is_inference = is_inference.inc_ref().ptr();
  torch().in_inference = in_inference.inc_ref().ptr();
  torch().count_change = count_change.inc_ref().ptr();
  torch().current_stream = current_stream.is_none() ? nullptr : current_stream.inc_ref().ptr();
  torch().exchange = exchange_api_in(exchange_api.inc_ref().ptr());
  set_exception_factory(make_exception);
}

}  // namespace
}  // namespace dorajit::python

PYBIND11_MODULE(_native, module) {
  namespace native = dorajit::python;
  using pybind11::arg;
  module.doc() = "The operations of dorajit's C interface over torch tensors.";
  module.attr("__version__") = DORAJIT_VERSION;
  module.def(
      "configure", &native::configure, arg("dtypes"), arg("complex_parts"), arg("byte_type"),
      arg("empty_like"), arg("is_neg"), arg("is_inference"), arg("in_inference"),
      arg("count_change"), arg("current_stream"), arg("exchange_api"), arg("make_exception"),
      "Passes the functions and types of the loaded PyTorch, which the extension module does not "
      "import (dorajit/_torch_setup.py). dtypes: in the order of kTypes; None for those that this "
      "PyTorch does not have. make_exception: (status, message, log) -> exception.");
  native::dtype_alone();
  native::add_operations(module);
  native::add_gated_mlp(module);
  native::add_linear(module);
  native::add_linear_gradients(module);
  native::add_own_kernels(module);
  native::add_recording(module);
  native::add_eligibility(module);
  native::add_tensor_state(module);
  module.def("statistics", &native::statistics,
             "Counters of the engines of this process, and the plans that they have made.");
  module.def(
      "exchange_tune_policy",
      [](std::int32_t policy) { return native::engines().exchange_policy(policy); }, arg("policy"),
      "Sets the tuning policy of this process and returns the previous one.");
}
