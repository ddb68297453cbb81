#include "bindings/python/operations.h"

#include <dorajit/dorajit.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "bindings/python/native_call.h"
#include "bindings/python/native_error.h"
#include "bindings/python/positional_function.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

constexpr std::array kOperations = {"compose",       "compose_inner",    "backward",
                                    "norm_assembly", "compose_residual", "residual_backward"};
std::array<std::atomic<std::int64_t>, kOperations.size()> calls{};

// Reads the named argument, or raises DORAJIT_UNSUPPORTED.
void read(const char* operation, const char* argument, py::handle tensor, TorchTensor& into) {
  if (into.read(tensor)) return;
  raise(DORAJIT_UNSUPPORTED,
        std::string(operation) + ": argument `" + argument +
            "` is no dense float16, bfloat16, float32 or float64 tensor of the CPU or a CUDA "
            "device");
}

// Raises DORAJIT_INVALID_ARGUMENT for tensors of several shapes, of which some may be null.
void demand_one_shape(const char* operation, std::initializer_list<const DLTensor*> tensors) {
  if (have_one_shape(tensors)) return;
  raise(DORAJIT_INVALID_ARGUMENT,
        std::string(operation) + ": the tensors have different shapes; give all the same");
}

// The arguments of a call, all of which have to be tensors.
template <std::size_t kCount>
class Operands {
 public:
  Operands(const char* operation, const std::array<const char*, kCount>& names,
           Tensors<kCount> tensors) {
    for (std::size_t i = 0; i < kCount; ++i) read(operation, names[i], tensors[i], tensors_[i]);
  }

  const DLTensor* operator[](std::size_t i) const { return &tensors_[i].dl(); }

 private:
  std::array<TorchTensor, kCount> tensors_;
};

// An argument that may be None.
class OptionalTensor {
 public:
  OptionalTensor(const char* operation, const char* argument, py::handle tensor)
      : is_there_(!tensor.is_none()) {
    if (is_there_) read(operation, argument, tensor, tensor_);
  }

  [[nodiscard]] const DLTensor* dl() const { return is_there_ ? &tensor_.dl() : nullptr; }

 private:
  TorchTensor tensor_;
  bool is_there_;
};

void compose(Tensors<4> tensors, double scale) {
  const Operands<4> operands("compose", {"lora", "base", "gain", "out"}, tensors);
  demand_one_shape("compose", {operands[0], operands[1], operands[3]});
  void* const stream = current_stream(operands[0]->device);
  run([&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_compose(engine, stream, operands[0], operands[1], operands[2], scale,
                           operands[3], error);
  });
  count_call(DORAJIT_OP_COMPOSE);
}

void compose_inner(Tensors<5> tensors, double scale) {
  const Operands<5> operands("compose_inner", {"lora", "base", "gain", "out", "inner"}, tensors);
  demand_one_shape("compose_inner", {operands[0], operands[1], operands[3], operands[4]});
  void* const stream = current_stream(operands[0]->device);
  run([&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_compose_inner(engine, stream, operands[0], operands[1], operands[2], scale,
                                 operands[3], operands[4], error);
  });
  count_call(DORAJIT_OP_COMPOSE_INNER);
}

// lora, result, gain, bias, out and inner.
void compose_residual(Tensors<6> tensors, double scale) {
  constexpr const char* kName = "compose_residual";
  const Operands<4> operands(
      kName, {"lora", "result", "gain", "out"},
      std::array<PyObject*, 4>{tensors[0], tensors[1], tensors[2], tensors[4]});
  const OptionalTensor bias(kName, "bias", tensors[3]);
  const OptionalTensor inner(kName, "inner", tensors[5]);
  demand_one_shape(kName, {operands[0], operands[1], operands[3], inner.dl()});
  void* const stream = current_stream(operands[0]->device);
  run([&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_compose_residual(engine, stream, operands[0], operands[1], operands[2],
                                    bias.dl(), scale, operands[3], inner.dl(), error);
  });
  count_call(DORAJIT_OP_COMPOSE_RESIDUAL);
}

// d_out, inner, gain, and the gradients for lora, the base result and gain. `kRun` has the
// signature of dorajit_backward.
template <std::int32_t kOperation, auto kRun>
void backward(Tensors<6> tensors, double scale) {
  const char* const name = kOperations[kOperation];
  const Operands<2> needed(name, {"d_out", "gain"},
                           std::array<PyObject*, 2>{tensors[0], tensors[2]});
  const OptionalTensor inner(name, "inner", tensors[1]);
  const OptionalTensor d_lora(name, "d_lora", tensors[3]);
  const OptionalTensor d_base(name, "d_base", tensors[4]);
  const OptionalTensor d_gain(name, "d_gain", tensors[5]);
  demand_one_shape(name, {needed[0], inner.dl(), d_lora.dl(), d_base.dl()});
  std::int64_t bytes = 0;
  TorchMemory workspace;
  if (d_gain.dl() != nullptr) {
    check([&](dorajit_error** error) {
      return dorajit_backward_workspace(needed[0], needed[1], &bytes, error);
    });
    if (bytes > 0) workspace = TorchMemory(tensors[0], bytes);
  }
  void* const stream = current_stream(needed[0]->device);
  run([&](dorajit_engine* engine, dorajit_error** error) {
    return kRun(engine, stream, needed[0], inner.dl(), needed[1], scale, d_lora.dl(), d_base.dl(),
                d_gain.dl(), workspace.data(), bytes, error);
  });
  count_call(kOperation);
}

void norm_assembly(Tensors<4> tensors, double scale) {
  const Operands<4> operands("norm_assembly", {"w_norm_sq", "cross_term", "ba_norm_sq", "norm"},
                             tensors);
  demand_one_shape("norm_assembly", {operands[0], operands[1], operands[2], operands[3]});
  void* const stream = current_stream(operands[0]->device);
  run([&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_norm_assembly(engine, stream, operands[0], operands[1], operands[2], scale,
                                 operands[3], error);
  });
  count_call(DORAJIT_OP_NORM_ASSEMBLY);
}

void warmup(std::int32_t operation, const py::sequence& tensors) {
  std::vector<TorchTensor> read_tensors(tensors.size());
  std::vector<const DLTensor*> pointers(tensors.size(), nullptr);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const py::object tensor = tensors[i];
    if (tensor.is_none()) continue;
    read("warmup", std::to_string(i).c_str(), tensor, read_tensors[i]);
    pointers[i] = &read_tensors[i].dl();
  }
  run([&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_warmup(engine, operation, pointers.data(),
                          static_cast<std::int32_t>(pointers.size()), error);
  });
}

}  // namespace

void count_call(std::int32_t operation) {
  calls[static_cast<std::size_t>(operation)].fetch_add(1, std::memory_order_relaxed);
}

void add_operations(py::module_& module) {
  static std::array methods = {
      positional_method<4, compose>("compose",
                                    "compose($module, lora, base, gain, out, scale, /)\n--\n\n"
                                    "(Tensor, Tensor, Tensor, Tensor, float) -> None\n\n"
                                    "out = (gain - 1) * base + gain * (scale * lora)"),
      positional_method<5, compose_inner>(
          "compose_inner",
          "compose_inner($module, lora, base, gain, out, inner, scale, /)\n--\n\n"
          "(Tensor, Tensor, Tensor, Tensor, Tensor, float) -> None\n\n"
          "compose, and inner = scale * lora + base"),
      positional_method<6, backward<DORAJIT_OP_BACKWARD, dorajit_backward>>(
          "backward",
          "backward($module, d_out, inner, gain, d_lora, d_base, d_gain, scale, /)\n--\n\n"
          "(Tensor, Tensor | None, Tensor, Tensor | None, Tensor | None, Tensor | None, "
          "float) -> None\n\n"
          "The gradients of compose; None for those that are not wanted."),
      positional_method<6, compose_residual>(
          "compose_residual",
          "compose_residual($module, lora, result, gain, bias, out, inner, scale, /)\n--\n\n"
          "(Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor | None, float) -> None\n\n"
          "out = result + ((gain - 1) * base + gain * (scale * lora)), inner = scale * lora + "
          "base, "
          "base = result - bias; bias and inner may be None"),
      positional_method<6, backward<DORAJIT_OP_RESIDUAL_BACKWARD, dorajit_residual_backward>>(
          "residual_backward",
          "residual_backward($module, d_out, inner, gain, d_lora, d_result, d_gain, scale, /)\n"
          "--\n\n"
          "(Tensor, Tensor | None, Tensor, Tensor | None, Tensor | None, Tensor | None, "
          "float) -> None\n\n"
          "The gradients of compose_residual; None for those that are not wanted."),
      positional_method<4, norm_assembly>(
          "norm_assembly",
          "norm_assembly($module, w_norm_sq, cross, ba_norm_sq, norm, scale, /)\n--\n\n"
          "(Tensor, Tensor, Tensor, Tensor, float) -> None\n\n"
          "norm = sqrt(max(w_norm_sq + 2 scale * cross + scale^2 * ba_norm_sq, 0))"),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
  module.def("warmup", &warmup, py::arg("operation"), py::arg("tensors"),
             "(int, Sequence[Tensor | None]) -> None\n\n"
             "Makes ready what a call of the operation with such tensors would launch.");
}

py::dict call_counts() {
  py::dict counts;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    counts[kOperations[i]] = calls[i].load(std::memory_order_relaxed);
  }
  return counts;
}

}  // namespace dorajit::python
