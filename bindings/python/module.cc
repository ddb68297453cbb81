// The extension module dorajit._native: the operations of dorajit.h over torch tensors.
#include <dorajit/dorajit.h>
#include <pybind11/pybind11.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "bindings/python/engines.h"
#include "bindings/python/native_error.h"
#include "bindings/python/torch_tensor.h"
#include "bindings/python/without_gil.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

constexpr std::array kOperations = {"compose", "compose_inner", "backward", "norm_assembly"};
std::array<std::atomic<std::int64_t>, kOperations.size()> calls{};

// Reads the named argument, or raises DORAJIT_UNSUPPORTED.
void read(const char* operation, const char* argument, py::handle tensor, TorchTensor& into) {
  if (into.read(tensor)) return;
  raise(DORAJIT_UNSUPPORTED,
        std::string(operation) + ": argument `" + argument +
            "` is no dense float16, bfloat16, float32 or float64 tensor of the CPU or a CUDA "
            "device");
}

struct Argument {
  const char* name;
  py::handle tensor;
};

// The arguments of a call, all of which have to be tensors.
template <std::size_t kCount>
class Operands {
 public:
  Operands(const char* operation, const std::array<Argument, kCount>& arguments) {
    for (std::size_t i = 0; i < kCount; ++i) {
      read(operation, arguments[i].name, arguments[i].tensor, tensors_[i]);
    }
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

// Runs `call(engine, error)` without the GIL, which the first call of a problem would hold for long
// and which other threads may need. Counts it if it succeeds.
template <class Call>
void run(std::int32_t operation, const Call& call) {
  dorajit_error* error = nullptr;
  const dorajit_status status = without_gil([&] {
    dorajit_engine* engine = nullptr;
    const dorajit_status created = engines().current(&engine, &error);
    return created == DORAJIT_OK ? call(engine, &error) : created;
  });
  check(status, error);
  calls[static_cast<std::size_t>(operation)].fetch_add(1, std::memory_order_relaxed);
}

void compose(py::handle lora, py::handle base, py::handle gain, py::handle out, double scale) {
  const Operands<4> operands("compose",
                             {{{"lora", lora}, {"base", base}, {"gain", gain}, {"out", out}}});
  void* const stream = current_stream(operands[0]->device);
  run(DORAJIT_OP_COMPOSE, [&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_compose(engine, stream, operands[0], operands[1], operands[2], scale,
                           operands[3], error);
  });
}

void compose_inner(py::handle lora, py::handle base, py::handle gain, py::handle out,
                   py::handle inner, double scale) {
  const Operands<5> operands(
      "compose_inner",
      {{{"lora", lora}, {"base", base}, {"gain", gain}, {"out", out}, {"inner", inner}}});
  void* const stream = current_stream(operands[0]->device);
  run(DORAJIT_OP_COMPOSE_INNER, [&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_compose_inner(engine, stream, operands[0], operands[1], operands[2], scale,
                                 operands[3], operands[4], error);
  });
}

// Bytes from PyTorch's allocator on the tensor's device, so that they may be dropped as soon as the
// work is enqueued.
py::object allocate(py::handle like, std::int64_t bytes) {
  return like.attr("new_empty")(bytes, py::arg("dtype") = py::handle(torch().byte_type));
}

void backward(py::handle d_out, py::handle inner, py::handle gain, py::handle d_lora,
              py::handle d_base, py::handle d_gain, double scale) {
  TorchTensor o;
  TorchTensor g;
  read("backward", "d_out", d_out, o);
  read("backward", "gain", gain, g);
  const OptionalTensor i("backward", "inner", inner);
  const OptionalTensor to_lora("backward", "d_lora", d_lora);
  const OptionalTensor to_base("backward", "d_base", d_base);
  const OptionalTensor to_gain("backward", "d_gain", d_gain);
  std::int64_t bytes = 0;
  py::object workspace;
  void* memory = nullptr;
  if (to_gain.dl() != nullptr) {
    dorajit_error* error = nullptr;
    check(dorajit_backward_workspace(&o.dl(), &g.dl(), &bytes, &error), error);
    if (bytes > 0) {
      workspace = allocate(d_out, bytes);
      memory = std::bit_cast<void*>(workspace.attr("data_ptr")().cast<std::intptr_t>());
    }
  }
  void* const stream = current_stream(o.dl().device);
  run(DORAJIT_OP_BACKWARD, [&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_backward(engine, stream, &o.dl(), i.dl(), &g.dl(), scale, to_lora.dl(),
                            to_base.dl(), to_gain.dl(), memory, bytes, error);
  });
}

void norm_assembly(py::handle w_norm_sq, py::handle cross, py::handle ba_norm_sq, py::handle norm,
                   double scale) {
  const Operands<4> operands("norm_assembly", {{{"w_norm_sq", w_norm_sq},
                                                {"cross_term", cross},
                                                {"ba_norm_sq", ba_norm_sq},
                                                {"norm", norm}}});
  void* const stream = current_stream(operands[0]->device);
  run(DORAJIT_OP_NORM_ASSEMBLY, [&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_norm_assembly(engine, stream, operands[0], operands[1], operands[2], scale,
                                 operands[3], error);
  });
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
  dorajit_error* error = nullptr;
  const dorajit_status status = without_gil([&] {
    dorajit_engine* engine = nullptr;
    const dorajit_status created = engines().current(&engine, &error);
    return created == DORAJIT_OK
               ? dorajit_warmup(engine, operation, pointers.data(),
                                static_cast<std::int32_t>(pointers.size()), &error)
               : created;
  });
  check(status, error);
}

py::dict statistics() {
  dorajit_statistics total{};
  dorajit_error* error = nullptr;
  check(engines().statistics(&total, &error), error);
  py::dict counts;
  counts["launches"] = total.launches;
  counts["compilations"] = total.compilations;
  counts["artifact_hits"] = total.artifact_hits;
  counts["builtin_kernels"] = total.builtin_kernels;
  counts["tuned_problems"] = total.tuned_problems;
  counts["trials"] = total.trials;
  return counts;
}

py::dict call_counts() {
  py::dict counts;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    counts[kOperations[i]] = calls[i].load(std::memory_order_relaxed);
  }
  return counts;
}

void configure(const py::sequence& dtypes, const py::object& byte_type,
               const py::object& current_stream, const py::function& make_exception) {
  constexpr std::array<DLDataType, Torch::kTypes> kTypes = {{
      {.code = kDLFloat, .bits = 32, .lanes = 1},
      {.code = kDLFloat, .bits = 16, .lanes = 1},
      {.code = kDLBfloat, .bits = 16, .lanes = 1},
      {.code = kDLFloat, .bits = 64, .lanes = 1},
  }};
  if (dtypes.size() != kTypes.size()) throw py::value_error("dtypes: give four");
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    torch().types[i] = {.dtype = py::object(dtypes[i]).release().ptr(), .dl = kTypes[i]};
  }
  torch().byte_type = byte_type.inc_ref().ptr();
  torch().current_stream = current_stream.is_none() ? nullptr : current_stream.inc_ref().ptr();
  set_exception_factory(make_exception);
}

std::int32_t exchange_tune_policy(std::int32_t policy) {
  if (policy < DORAJIT_TUNE_FROM_ENVIRONMENT || policy > DORAJIT_TUNE_OFF) {
    throw py::value_error("policy: give 0, 1 or 2");
  }
  return engines().exchange_policy(policy);
}

}  // namespace
}  // namespace dorajit::python

PYBIND11_MODULE(_native, module) {
  namespace native = dorajit::python;
  using pybind11::arg;
  module.doc() = "The operations of dorajit's C interface over torch tensors.";
  module.attr("__version__") = DORAJIT_VERSION;
  module.def("configure", &native::configure, arg("dtypes"), arg("byte_type"),
             arg("current_stream"), arg("make_exception"),
             "Tells the extension of the PyTorch that is loaded: float32, float16, bfloat16, "
             "float64; uint8; device index -> raw stream, or None without CUDA; (status, message, "
             "log) -> exception.");
  module.def("compose", &native::compose, arg("lora"), arg("base"), arg("gain"), arg("out"),
             arg("scale"), "out = (gain - 1) * base + gain * (scale * lora)");
  module.def("compose_inner", &native::compose_inner, arg("lora"), arg("base"), arg("gain"),
             arg("out"), arg("inner"), arg("scale"), "compose, and inner = scale * lora + base");
  module.def("backward", &native::backward, arg("d_out"), arg("inner"), arg("gain"), arg("d_lora"),
             arg("d_base"), arg("d_gain"), arg("scale"),
             "The gradients of compose; None for those that are not wanted.");
  module.def("norm_assembly", &native::norm_assembly, arg("w_norm_sq"), arg("cross"),
             arg("ba_norm_sq"), arg("norm"), arg("scale"),
             "norm = sqrt(max(w_norm_sq + 2 scale * cross + scale^2 * ba_norm_sq, 0))");
  module.def("warmup", &native::warmup, arg("operation"), arg("tensors"),
             "Makes ready what a call of the operation with such tensors would launch.");
  module.def("statistics", &native::statistics, "What the engines of this process have done.");
  module.def("call_counts", &native::call_counts, "Operation -> calls that a kernel served.");
  module.def("exchange_tune_policy", &native::exchange_tune_policy, arg("policy"),
             "Sets the tuning policy of this process and returns the previous one.");
}
