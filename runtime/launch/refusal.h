// Errors of refused calls, which name the operation and the argument.
#pragma once

#include <expected>
#include <string_view>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"

namespace dorajit::launch {

// Builds "OP: argument `x` is missing; pass a tensor"; `what` is its end.
std::unexpected<Error> refuse(StatusCode code, const kernels::Operation& operation,
                              const kernels::Operand& operand, std::string_view what);

}  // namespace dorajit::launch
