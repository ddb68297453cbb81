#include "bindings/python/native_operation.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <format>
#include <iterator>
#include <ranges>
#include <string>
#include <vector>

#include "bindings/python/native_call.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

std::size_t model_of(const NativeOperation& operation, const dorajit_operand_info& operand) {
  const auto found = std::ranges::find_if(operation.operands, [&](const auto& one) {
    return std::string_view(one.dimensions) == operand.dimensions;
  });
  return static_cast<std::size_t>(found - operation.operands.begin());
}

// "rows, cols" -> {"rows", "cols"}.
std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  for (const auto name : std::views::split(list, std::string_view(", "))) {
    names.emplace_back(name.begin(), name.end());
  }
  return names;
}

std::deque<NativeOperation> read_operations() {
  std::deque<NativeOperation> operations;
  for (std::int32_t i = 0; i < dorajit_operation_count(); ++i) {
    operations.emplace_back(dorajit_operation_at(i));
  }
  return operations;
}

[[noreturn]] void refuse_to_allocate(const NativeOperation& operation, std::size_t output) {
  raise(DORAJIT_INVALID_ARGUMENT,
        std::format("{}: argument `{}` is not a tensor, and no input determines its sizes ({}); "
                    "give a tensor, or an element type and the inputs with these dimensions",
                    operation.info.name, operation.operands[output].name,
                    operation.operands[output].dimensions));
}

// The tensor's sizes that form one dimension of its operand: all of them for a vector; for a matrix
// the last one (columns) or all others (rows).
std::span<const std::int64_t> sizes_of(const DLTensor& tensor, std::size_t place,
                                       std::size_t places) {
  const std::span<const std::int64_t> all(tensor.shape, static_cast<std::size_t>(tensor.ndim));
  if (places == 1) return all;
  const std::size_t outer = all.empty() ? 0 : all.size() - 1;
  return place == 0 ? all.first(outer) : all.subspan(outer);
}

// The shape of an output, from the sizes of its dimensions in the given inputs. Null if no given
// input has one of them.
py::object shape_of(const NativeOperation& operation, std::size_t output,
                    std::span<const DLTensor* const> tensors) {
  std::vector<std::int64_t> sizes;
  for (const std::string& name : operation.dimensions[output]) {
    bool is_found = false;
    for (std::size_t i = 0; i < tensors.size() && !is_found; ++i) {
      if (tensors[i] == nullptr || operation.operands[i].is_output != 0) continue;
      const std::vector<std::string>& names = operation.dimensions[i];
      const auto place = static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
      if (place == names.size()) continue;
      std::ranges::copy(sizes_of(*tensors[i], place, names.size()), std::back_inserter(sizes));
      is_found = true;
    }
    if (!is_found) return {};
  }
  py::object shape = owned(PyTuple_New(static_cast<Py_ssize_t>(sizes.size())));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    PyTuple_SET_ITEM(shape.ptr(), static_cast<Py_ssize_t>(i),
                     owned(PyLong_FromLongLong(sizes[i])).release().ptr());
  }
  return shape;
}

// torch.empty_like(tensor, dtype=dtype); `is_of_that_type` skips the argument.
py::object empty_like(PyObject* tensor, bool is_of_that_type, PyObject* dtype) {
  if (is_of_that_type) return owned(PyObject_CallOneArg(torch().empty_like, tensor));
  const std::array<PyObject*, 2> arguments = {tensor, dtype};
  return owned(PyObject_Vectorcall(torch().empty_like, arguments.data(), 1, dtype_alone()));
}

}  // namespace

NativeOperation::NativeOperation(const dorajit_operation* operation) : handle(operation) {
  info.struct_size = sizeof info;
  dorajit_operation_describe(handle, &info, nullptr);
  for (std::int32_t i = 0; i < info.num_operands; ++i) {
    dorajit_operand_info& operand = operands.emplace_back();
    operand.struct_size = sizeof operand;
    dorajit_operation_operand(handle, i, &operand, nullptr);
  }
  for (const dorajit_operand_info& operand : operands) {
    models.push_back(model_of(*this, operand));
    dimensions.push_back(names_in(operand.dimensions));
  }
}

std::deque<NativeOperation>& native_operations() {
  static std::deque<NativeOperation> operations = read_operations();
  return operations;
}

NativeOperation* find_native_operation(std::string_view name) {
  auto& all = native_operations();
  const auto found =
      std::ranges::find_if(all, [&](const NativeOperation& one) { return one.info.name == name; });
  return found == all.end() ? nullptr : &*found;
}

void refuse(const char* operation, const char* argument) {
  raise(DORAJIT_UNSUPPORTED,
        std::string(operation) + ": argument `" + argument +
            "` is not a dense float16, bfloat16, float32 or float64 tensor on the CPU or a CUDA "
            "device; pass one");
}

bool is_left_out(const dorajit_operand_info& operand, PyObject* given) {
  return (given == Py_None || given == Py_False) && operand.presence != DORAJIT_OPERAND_REQUIRED;
}

bool Operands::read(const NativeOperation& operation, std::span<PyObject* const> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const dorajit_operand_info& operand = operation.operands[i];
    if (is_left_out(operand, arguments[i])) continue;
    const bool is_read =
        operand.is_output != 0 ? add_output(operation, arguments, i) : add(arguments[i], i);
    if (!is_read) {
      refused_ = i;
      return false;
    }
  }
  return have_equal_shapes(operation);
}

void Operands::why_not(const NativeOperation& operation) const {
  const dorajit_operand_info& operand = operation.operands[refused_];
  if (is_without_sizes_) refuse_to_allocate(operation, refused_);
  if (pointers_[refused_] == nullptr) refuse(operation.info.name, operand.name);
  raise(DORAJIT_INVALID_ARGUMENT,
        std::format("{}: arguments `{}` and `{}` have different shapes; give both the same",
                    operation.info.name, operation.operands[operation.models[refused_]].name,
                    operand.name));
}

py::object Operands::outputs(const NativeOperation& operation) const {
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

bool Operands::add(PyObject* given, std::size_t i) {
  if (!tensors_[i].read(given)) return false;
  pointers_[i] = &tensors_[i].dl();
  return true;
}

bool Operands::add_output(const NativeOperation& operation, std::span<PyObject* const> arguments,
                          std::size_t i) {
  const std::size_t model = operation.models[i];
  const bool has_model = operation.operands[model].is_output == 0 && pointers_[model] != nullptr;
  const bool is_as_model = arguments[i] == Py_True;
  const DLDataType* const type = is_as_model ? nullptr : kernel_type_of(arguments[i]);
  if (is_as_model || type != nullptr) {
    if (has_model) {
      const bool is_of_that_type = is_as_model || have_one_type(*type, pointers_[model]->dtype);
      made_[i] = empty_like(arguments[model], is_of_that_type, arguments[i]);
    } else {
      const py::object shape =
          is_as_model ? py::object() : shape_of(operation, i, std::span(pointers_).first(i));
      is_without_sizes_ = !shape;
      if (is_without_sizes_) return false;
      made_[i] = new_empty(arguments[0], shape.ptr(), arguments[i]);
    }
    if (!tensors_[i].read_result(made_[i])) return false;
    pointers_[i] = &tensors_[i].dl();
    return true;
  }
  made_[i] = py::reinterpret_borrow<py::object>(arguments[i]);
  if (!has_model || arguments[i] != arguments[model]) return add(arguments[i], i);
  pointers_[i] = pointers_[model];
  return true;
}

// The library only sees rows and columns, so it cannot detect tensors of different shapes with
// equal rows and columns. It checks the other sizes itself.
bool Operands::have_equal_shapes(const NativeOperation& operation) {
  for (std::size_t i = 1; i < operation.operands.size(); ++i) {
    const std::size_t model = operation.models[i];
    if (pointers_[i] == nullptr || pointers_[model] == nullptr) continue;
    if (operation.operands[i].is_per_channel != 0) continue;
    if (have_one_shape(*pointers_[model], *pointers_[i])) continue;
    refused_ = i;
    return false;
  }
  return true;
}

}  // namespace dorajit::python
