// The operations of the library, and own kernels, as handles of the C ABI.
#pragma once

#include <dorajit/dorajit.h>

#include <format>
#include <span>
#include <string_view>

#include "bindings/c/error_handle.h"
#include "kernel_templates/registry.h"

namespace dorajit::bindings {

// A handle is the address of the operation itself.
inline const dorajit_operation* to_handle(const kernels::Operation* operation) {
  return reinterpret_cast<const dorajit_operation*>(operation);
}

inline const kernels::Operation* from_handle(const dorajit_operation* operation) {
  return reinterpret_cast<const kernels::Operation*>(operation);
}

// The operation of a handle. Checks that the number of tensors equals its number of operands.
// `function` is the name used in messages.
inline Result<const kernels::Operation*> check_tensor_count(std::string_view function,
                                                            const dorajit_operation* handle,
                                                            const DLTensor* const* tensors,
                                                            std::int32_t num_tensors) {
  DORAJIT_TRY(require(handle, function, "operation", "pass what dorajit_operation_find returns"));
  const kernels::Operation* operation = from_handle(handle);
  const std::size_t wanted = operation->operands.size();
  if (tensors != nullptr && num_tensors >= 0 && static_cast<std::size_t>(num_tensors) == wanted) {
    return operation;
  }
  return fail(StatusCode::kInvalidArgument,
              std::format("{}: `{}` has {} tensors but {} are given; pass all of them, NULL for "
                          "those that are left out",
                          function, operation->name, wanted, tensors == nullptr ? 0 : num_tensors));
}

// The scalars of a call, which have to be as many as the operation has.
inline Result<std::span<const double>> check_scalars(std::string_view function,
                                                     const kernels::Operation& operation,
                                                     const double* scalars,
                                                     std::int32_t num_scalars) {
  const std::size_t wanted = operation.scalars.size();
  const bool has_all = num_scalars >= 0 && static_cast<std::size_t>(num_scalars) == wanted &&
                       (wanted == 0 || scalars != nullptr);
  if (has_all) return std::span(scalars, wanted);
  return fail(StatusCode::kInvalidArgument,
              std::format("{}: `{}` has {} scalars but {} are given; pass all of them", function,
                          operation.name, wanted, scalars == nullptr ? 0 : num_scalars));
}

// For a call that is only described: the scalars of the library's own operations, which are not
// part of a problem, may be left out.
inline Result<std::span<const double>> check_described_scalars(std::string_view function,
                                                               const kernels::Operation& operation,
                                                               const double* scalars,
                                                               std::int32_t num_scalars) {
  if (num_scalars == 0 && operation.sources.empty()) return std::span<const double>();
  return check_scalars(function, operation, scalars, num_scalars);
}

}  // namespace dorajit::bindings
