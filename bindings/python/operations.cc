#include "bindings/python/operations.h"

#include <dorajit/dorajit.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <format>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/native_call.h"
#include "bindings/python/native_error.h"
#include "bindings/python/native_operation.h"
#include "bindings/python/positional_function.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

constexpr std::size_t kMostOperands = 8;
constexpr std::size_t kMostScalars = 8;

[[noreturn]] void refuse(const char* operation, const char* argument) {
  raise(DORAJIT_UNSUPPORTED,
        std::string(operation) + ": argument `" + argument +
            "` is no dense float16, bfloat16, float32 or float64 tensor of the CPU or a CUDA "
            "device");
}

// Reads the named argument, or raises DORAJIT_UNSUPPORTED.
void read(const char* operation, const char* argument, py::handle tensor, TorchTensor& into) {
  if (!into.read(tensor)) refuse(operation, argument);
}

// The same of one that was allocated for the call.
void read_result(const char* operation, const char* argument, py::handle tensor,
                 TorchTensor& into) {
  if (!into.read_result(tensor)) refuse(operation, argument);
}

py::object owned(PyObject* made) {
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

[[noreturn]] void refuse_to_allocate(const NativeOperation& operation, std::size_t output) {
  raise(DORAJIT_INVALID_ARGUMENT,
        std::format("{}: argument `{}` is an element type, but no input has its dimensions, {}; "
                    "give a tensor",
                    operation.info.name, operation.operands[output].name,
                    operation.operands[output].dimensions));
}

// A tensor of that element type, otherwise like another.
py::object empty_like(PyObject* tensor, bool is_of_that_type, PyObject* dtype) {
  if (is_of_that_type) return owned(PyObject_CallOneArg(torch().empty_like, tensor));
  const std::array<PyObject*, 2> arguments = {tensor, dtype};
  return owned(PyObject_Vectorcall(torch().empty_like, arguments.data(), 1, dtype_alone()));
}

bool are_equal(const DLDataType& a, const DLDataType& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// The tensors of a call, null for None where an operand may be left out. An output that is an
// element type is allocated.
class Operands {
 public:
  Operands(const NativeOperation& operation, std::span<PyObject* const> arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const dorajit_operand_info& operand = operation.operands[i];
      PyObject* const given = arguments[i];
      if (given == Py_None && operand.presence != DORAJIT_OPERAND_REQUIRED) continue;
      pointers_[i] =
          operand.is_output != 0 ? add_output(operation, arguments, i) : add(operation, given, i);
    }
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  [[nodiscard]] const DLTensor* const* data() const { return pointers_.data(); }
  const DLTensor* operator[](std::size_t i) const { return pointers_[i]; }

  // The output, or a tuple of several with None for those that were left out.
  [[nodiscard]] py::object outputs(const NativeOperation& operation) const {
    const std::size_t count = operation.operands.size();
    std::size_t first = 0;
    while (operation.operands[first].is_output == 0) ++first;
    if (first + 1 == count) return made_[first];
    const py::object all = owned(PyTuple_New(static_cast<Py_ssize_t>(count - first)));
    for (std::size_t i = first; i < count; ++i) {
      PyObject* const one = made_[i] ? made_[i].ptr() : Py_None;
      PyTuple_SET_ITEM(all.ptr(), static_cast<Py_ssize_t>(i - first), Py_NewRef(one));
    }
    return all;
  }

 private:
  const DLTensor* add(const NativeOperation& operation, PyObject* given, std::size_t i) {
    read(operation.info.name, operation.operands[i].name, given, tensors_[i]);
    return &tensors_[i].dl();
  }

  const DLTensor* add_output(const NativeOperation& operation, std::span<PyObject* const> arguments,
                             std::size_t i) {
    const std::size_t model = operation.models[i];
    const bool has_model = operation.operands[model].is_output == 0 && pointers_[model] != nullptr;
    if (const DLDataType* const type = kernel_type_of(arguments[i])) {
      if (!has_model) refuse_to_allocate(operation, i);
      made_[i] =
          empty_like(arguments[model], are_equal(*type, pointers_[model]->dtype), arguments[i]);
      read_result(operation.info.name, operation.operands[i].name, made_[i], tensors_[i]);
      return &tensors_[i].dl();
    }
    made_[i] = py::reinterpret_borrow<py::object>(arguments[i]);
    const bool is_in_place = has_model && arguments[i] == arguments[model];
    return is_in_place ? pointers_[model] : add(operation, arguments[i], i);
  }

  std::array<TorchTensor, kMostOperands> tensors_;
  std::array<const DLTensor*, kMostOperands> pointers_{};
  std::array<py::object, kMostOperands> made_;
};

// Raises DORAJIT_INVALID_ARGUMENT for operands of the same dimensions that differ in shape: the
// library sees their rows and columns alone. Whether others agree it finds out by itself.
void demand_equal_shapes(const NativeOperation& operation, const Operands& operands) {
  for (std::size_t i = 1; i < operation.operands.size(); ++i) {
    const std::size_t model = operation.models[i];
    if (operands[i] == nullptr || operands[model] == nullptr) continue;
    if (operation.operands[i].is_per_channel != 0) continue;
    if (have_one_shape(*operands[model], *operands[i])) continue;
    raise(DORAJIT_INVALID_ARGUMENT,
          std::format("{}: arguments `{}` and `{}` have different shapes; give both the same",
                      operation.info.name, operation.operands[model].name,
                      operation.operands[i].name));
  }
}

// Tensors in the order of the operands.
py::object run_operation(NativeOperation& operation, std::span<PyObject* const> tensors,
                         const double* scalars) {
  const auto count = static_cast<std::int32_t>(tensors.size());
  const Operands operands(operation, tensors);
  demand_equal_shapes(operation, operands);
  std::int64_t bytes = 0;
  TorchMemory workspace;
  if (operation.info.may_need_workspace != 0) {
    check([&](dorajit_error** error) {
      return dorajit_operation_workspace(operation.handle, operands.data(), count, &bytes, error);
    });
    if (bytes > 0) workspace = TorchMemory(tensors[0], bytes);
  }
  void* const stream = current_stream(operands[0]->device);
  run([&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_launch(engine, stream, operation.handle, operands.data(), count, scalars,
                          operation.info.num_scalars, workspace.data(), bytes, error);
  });
  count_call(operation);
  return operands.outputs(operation);
}

constexpr const char* kCapsuleName = "dorajit.operation";

// Of every operation, with its tensors and then its scalars; `self` is the capsule of a
// NativeOperation.
PyObject* call_operation(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept {
  auto* operation = static_cast<NativeOperation*>(PyCapsule_GetPointer(self, kCapsuleName));
  if (operation == nullptr) return nullptr;
  const std::size_t tensors = operation->operands.size();
  const auto num_scalars = static_cast<std::size_t>(operation->info.num_scalars);
  if (count != static_cast<Py_ssize_t>(tensors + num_scalars)) {
    return PyErr_Format(PyExc_TypeError, "takes %zd arguments, not %zd",
                        static_cast<Py_ssize_t>(tensors + num_scalars), count);
  }
  std::array<double, kMostScalars> scalars;
  for (std::size_t i = 0; i < num_scalars; ++i) {
    scalars[i] = PyFloat_AsDouble(arguments[tensors + i]);
    if (scalars[i] == -1 && PyErr_Occurred() != nullptr) return nullptr;
  }
  return with_python_errors([&] {
    return run_operation(*operation, std::span(arguments, tensors), scalars.data()).release().ptr();
  });
}

std::span<const char* const> scalars_of(const NativeOperation& operation) {
  return {operation.info.scalars, static_cast<std::size_t>(operation.info.num_scalars)};
}

// The names and types that make_stub.py reads, and what is computed.
std::string documentation_of(const NativeOperation& operation) {
  std::string names;
  std::string types;
  std::string results;
  const auto add = [](std::string& list, std::string_view one) {
    if (!list.empty()) list += ", ";
    list += one;
  };
  int num_results = 0;
  for (const dorajit_operand_info& operand : operation.operands) {
    const char* const none = operand.presence == DORAJIT_OPERAND_REQUIRED ? "" : " | None";
    add(names, operand.name);
    add(types, std::format("Tensor{}{}", operand.is_output != 0 ? " | dtype" : "", none));
    if (operand.is_output == 0) continue;
    add(results, std::format("Tensor{}", none));
    ++num_results;
  }
  for (const char* const scalar : scalars_of(operation)) {
    add(names, scalar);
    add(types, "float");
  }
  return std::format(
      "{}($module, {}, /)\n--\n\n({}) -> {}\n\n{}\n\nAn output that is an element type is "
      "allocated.",
      operation.info.name, names, types,
      num_results == 1 ? results : std::format("tuple[{}]", results), operation.info.documentation);
}

// A function of the module for each operation.
void add_functions(py::module_& module) {
  static std::deque<std::pair<std::string, PyMethodDef>> methods;  // Python keeps their addresses
  for (NativeOperation& operation : native_operations()) {
    auto& [documentation, method] =
        methods.emplace_back(documentation_of(operation), PyMethodDef{});
    method = fast_method(operation.info.name, call_operation, documentation.c_str());
    const py::capsule self(&operation, kCapsuleName);
    PyObject* const function = PyCFunction_NewEx(&method, self.ptr(), nullptr);
    if (function == nullptr) throw py::error_already_set();
    module.attr(operation.info.name) = py::reinterpret_steal<py::object>(function);
  }
}

py::dict described(const dorajit_operand_info& operand) {
  using py::arg;
  return py::dict(arg("name") = operand.name,
                  arg("dimensions") = py::tuple(py::str(operand.dimensions).attr("split")(", ")),
                  arg("is_output") = operand.is_output != 0,
                  arg("is_required") = operand.presence == DORAJIT_OPERAND_REQUIRED,
                  arg("is_for_sum") = operand.presence == DORAJIT_OPERAND_FOR_SUM,
                  arg("is_sum") = operand.is_sum != 0,
                  arg("is_per_channel") = operand.is_per_channel != 0);
}

py::list described_operations() {
  py::list all;
  for (const NativeOperation& operation : native_operations()) {
    py::list operands;
    for (const dorajit_operand_info& operand : operation.operands) {
      operands.append(described(operand));
    }
    py::list scalars;
    for (const char* const scalar : scalars_of(operation)) scalars.append(scalar);
    all.append(
        py::make_tuple(operation.info.name, operation.info.documentation, operands, scalars));
  }
  return all;
}

void warmup(const std::string& name, const py::sequence& tensors) {
  const NativeOperation* operation = find_native_operation(name);
  if (operation == nullptr) {
    raise(DORAJIT_INVALID_ARGUMENT, "warmup: there is no operation `" + name + "`");
  }
  std::vector<TorchTensor> read_tensors(tensors.size());
  std::vector<const DLTensor*> pointers(tensors.size(), nullptr);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const py::object tensor = tensors[i];
    if (tensor.is_none()) continue;
    read("warmup", std::to_string(i).c_str(), tensor, read_tensors[i]);
    pointers[i] = &read_tensors[i].dl();
  }
  run([&](dorajit_engine* engine, dorajit_error** error) {
    return dorajit_warmup(engine, operation->handle, pointers.data(),
                          static_cast<std::int32_t>(pointers.size()), error);
  });
}

}  // namespace

void count_call(NativeOperation& operation) {
  operation.calls.fetch_add(1, std::memory_order_relaxed);
}

void add_operations(py::module_& module) {
  add_functions(module);
  module.def("operations", &described_operations,
             "() -> list[tuple[str, str, list[dict[str, Any]], list[str]]]\n\n"
             "Name, documentation, operands and the names of the scalars of each operation. An "
             "operand has its name, the names of its dimensions, and whether it is an output, "
             "required, needed for the sum alone, the sum, and one element per channel.");
  module.def("warmup", &warmup, py::arg("operation"), py::arg("tensors"),
             "(str, Sequence[Tensor | None]) -> None\n\n"
             "Makes ready what a call of the operation with such tensors would launch.");
}

py::dict call_counts() {
  py::dict counts;
  for (const NativeOperation& operation : native_operations()) {
    counts[operation.info.name] = operation.calls.load(std::memory_order_relaxed);
  }
  return counts;
}

}  // namespace dorajit::python
