#include "bindings/python/operations.h"

#include <dorajit/dorajit.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <format>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/python/native_call.h"
#include "bindings/python/native_error.h"
#include "bindings/python/native_operation.h"
#include "bindings/python/operands.h"
#include "bindings/python/operation_call.h"
#include "bindings/python/positional_function.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

std::span<const char* const> scalars_of(const NativeOperation& operation) {
  return {operation.info.scalars, static_cast<std::size_t>(operation.info.num_scalars)};
}

// The docstring of a function: the signature and types that make_stub.py reads, then the formula.
std::string documentation_of(const NativeOperation& operation, std::string_view name,
                             std::string_view other_result, std::string_view notes) {
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
    add(types, std::format("Tensor{}{}", operand.is_output != 0 ? " | dtype | bool" : "", none));
    if (operand.is_output == 0) continue;
    add(results, std::format("Tensor{}", none));
    ++num_results;
  }
  for (const char* const scalar : scalars_of(operation)) {
    add(names, scalar);
    add(types, "float");
  }
  return std::format(
      "{}($module, {}, /)\n--\n\n({}) -> {}{}\n\n{}\n\nAn output that is passed as an element type "
      "is allocated; True means the type of the first input with the same dimensions.{}",
      name, names, types, num_results == 1 ? results : std::format("tuple[{}]", results),
      other_result, operation.info.documentation, notes);
}

struct Method {
  std::string name;
  std::string documentation;
  PyMethodDef definition{};
};

void add_function(py::module_& module, NativeOperation& operation, _PyCFunctionFast function,
                  std::string name, std::string documentation) {
  static std::deque<Method> methods;  // Python keeps pointers to them
  Method& method = methods.emplace_back(std::move(name), std::move(documentation));
  method.definition = fast_method(method.name.c_str(), function, method.documentation.c_str());
  const py::capsule self(&operation, kOperationCapsule);
  PyObject* const made = PyCFunction_NewEx(&method.definition, self.ptr(), nullptr);
  if (made == nullptr) throw py::error_already_set();
  module.attr(method.name.c_str()) = py::reinterpret_steal<py::object>(made);
}

// Two functions of the module for each operation.
void add_functions(py::module_& module) {
  for (NativeOperation& operation : native_operations()) {
    const std::string name = operation.info.name;
    add_function(module, operation, call_operation, name,
                 documentation_of(operation, name, "", ""));
    const std::string at_once = name + "_at_once";
    add_function(module, operation, call_at_once, at_once,
                 documentation_of(operation, at_once, " | int",
                                  " The whole call, if nothing observes it and a kernel serves it; "
                                  "otherwise returns who_sees() and does nothing."));
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
    raise(DORAJIT_INVALID_ARGUMENT,
          "warmup: unknown operation `" + name + "`; operations() lists them");
  }
  std::vector<TorchTensor> read_tensors(tensors.size());
  std::vector<const DLTensor*> pointers(tensors.size(), nullptr);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const py::object tensor = tensors[i];
    if (tensor.is_none()) continue;
    if (!read_tensors[i].read(tensor)) refuse("warmup", std::to_string(i).c_str());
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
             "Name, documentation, operands and names of the scalars of each operation. An operand "
             "has its name, the names of its dimensions, and flags: whether it is an output, is "
             "required, is only read for the sum, is the sum, and has one element per channel.");
  module.def("warmup", &warmup, py::arg("operation"), py::arg("tensors"),
             "(str, Sequence[Tensor | None]) -> None\n\n"
             "Compiles, tunes and loads the kernels that a call of the operation with such tensors "
             "would launch.");
}

py::dict call_counts() {
  py::dict counts;
  for (const NativeOperation& operation : native_operations()) {
    counts[operation.info.name] = operation.calls.load(std::memory_order_relaxed);
  }
  return counts;
}

}  // namespace dorajit::python
