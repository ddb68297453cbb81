#include "bindings/python/native_operation.h"

#include <algorithm>
#include <cstddef>
#include <ranges>

namespace dorajit::python {
namespace {

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

}  // namespace dorajit::python
