#include "bindings/c/operation_handle.h"

#include <cstddef>
#include <cstdint>
#include <format>
#include <map>
#include <string_view>
#include <vector>

#include "bindings/c/error_handle.h"
#include "dorajit/own_kernel.h"
#include "kernel_templates/registry.h"
#include "own_kernels/kernel.h"

namespace dorajit::bindings {
namespace {

using kernels::Operation;

const std::vector<const Operation*>& offered() {
  static const std::vector<const Operation*> operations = kernels::offered_operations();
  return operations;
}

template <class Info>
Status put(std::string_view function, const char* type, const Info& known, Info* info) {
  DORAJIT_TRY(require(info, function, "info", "pass the address of the struct to fill"));
  DORAJIT_TRY(check_struct_size(function, "info", type, info->struct_size, sizeof(std::size_t)));
  copy_sized(known, info);
  return {};
}

// The names of an operation's scalars as C strings. Never freed, because C callers may keep them.
const char* const* scalar_names(const Operation& wanted) {
  if (const char* const* own = own_kernels::scalar_names(wanted)) return own;
  using Names = std::vector<const char*>;
  static const auto* const all = [] {
    auto* names = new std::map<const Operation*, Names>;
    for (const Operation* const one : offered()) {
      // String literals, which are null-terminated.
      for (const std::string_view name : one->scalars) (*names)[one].push_back(name.data());
    }
    return names;
  }();
  const auto found = all->find(&wanted);
  return found == all->end() ? nullptr : found->second.data();
}

std::int32_t presence_of(const kernels::Operand& operand) {
  switch (operand.presence) {
    case kernels::Presence::kRequired:
      return DORAJIT_OPERAND_REQUIRED;
    case kernels::Presence::kOptional:
      return DORAJIT_OPERAND_OPTIONAL;
    case kernels::Presence::kForSum:
      return DORAJIT_OPERAND_FOR_SUM;
  }
  return DORAJIT_OPERAND_REQUIRED;
}

Status describe(const dorajit_operation* handle, dorajit_operation_info* info) {
  constexpr std::string_view kFunction = "operation_describe";
  DORAJIT_TRY(require(handle, kFunction, "operation", "pass what dorajit_operation_find returns"));
  const Operation& operation = *from_handle(handle);
  dorajit_operation_info known{};
  known.name = operation.name.data();  // a string literal, which is null-terminated
  known.documentation = operation.documentation.data();
  known.num_operands = static_cast<std::int32_t>(operation.operands.size());
  known.num_scalars = static_cast<std::int32_t>(operation.scalars.size());
  known.scalars = scalar_names(operation);
  // Among operations with a formula, only those with a sum have a second stage. For own kernels
  // there is dorajit_kernel_workspace().
  const bool may_need_workspace =
      operation.sum_operand >= 0 || (operation.formula.empty() && operation.sources.empty());
  known.may_need_workspace = may_need_workspace ? 1 : 0;
  return put(kFunction, "dorajit_operation_info", known, info);
}

Status describe_operand(const dorajit_operation* handle, std::int32_t index,
                        dorajit_operand_info* info) {
  constexpr std::string_view kFunction = "operation_operand";
  DORAJIT_TRY(require(handle, kFunction, "operation", "pass what dorajit_operation_find returns"));
  const Operation& operation = *from_handle(handle);
  if (index < 0 || static_cast<std::size_t>(index) >= operation.operands.size()) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: `{}` has {} operands; index {} is out of range", kFunction,
                            operation.name, operation.operands.size(), index));
  }
  const kernels::Operand& operand = operation.operands[static_cast<std::size_t>(index)];
  dorajit_operand_info known{};
  known.name = operand.name.data();  // a string literal, which is null-terminated
  known.dimensions = operand.shape.text.data();
  known.is_output = operand.role == kernels::OperandRole::kOutput ? 1 : 0;
  known.is_sum = operation.is_sum(static_cast<std::size_t>(index)) ? 1 : 0;
  known.presence = presence_of(operand);
  const auto inner = static_cast<std::size_t>(operand.shape.inner);
  const bool is_derived = operation.dimensions[inner].keying == kernels::Keying::kDerived;
  known.is_per_channel = !operand.shape.is_matrix() && is_derived ? 1 : 0;
  return put(kFunction, "dorajit_operand_info", known, info);
}

Status create_kernel(const char* json, const dorajit_operation** kernel) {
  constexpr std::string_view kFunction = "kernel_create";
  DORAJIT_TRY(require(kernel, kFunction, "kernel", "pass where the new operation goes"));
  *kernel = nullptr;
  DORAJIT_TRY(require(json, kFunction, "json", "pass a description"));
  DORAJIT_ASSIGN(const kernels::Operation* made, own_kernels::make_kernel(json));
  *kernel = to_handle(made);
  return {};
}

}  // namespace
}  // namespace dorajit::bindings

using dorajit::bindings::guarded;
using dorajit::bindings::offered;
using dorajit::bindings::to_handle;

const dorajit_operation* dorajit_operation_find(const char* name) {
  if (name == nullptr) return nullptr;
  const auto* found = dorajit::kernels::find_operation(name);
  return found != nullptr && found->is_offered ? to_handle(found) : nullptr;
}

std::int32_t dorajit_operation_count() { return static_cast<std::int32_t>(offered().size()); }

const dorajit_operation* dorajit_operation_at(std::int32_t index) {
  if (index < 0 || index >= dorajit_operation_count()) return nullptr;
  return to_handle(offered()[static_cast<std::size_t>(index)]);
}

dorajit_status dorajit_operation_describe(const dorajit_operation* operation,
                                          dorajit_operation_info* info, dorajit_error** error) {
  return guarded(error, [&] { return dorajit::bindings::describe(operation, info); });
}

dorajit_status dorajit_operation_operand(const dorajit_operation* operation, std::int32_t index,
                                         dorajit_operand_info* info, dorajit_error** error) {
  return guarded(error,
                 [&] { return dorajit::bindings::describe_operand(operation, index, info); });
}

dorajit_status dorajit_kernel_create(const char* json, const dorajit_operation** kernel,
                                     dorajit_error** error) {
  return guarded(error, [&] { return dorajit::bindings::create_kernel(json, kernel); });
}
