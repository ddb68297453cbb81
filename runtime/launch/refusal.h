// Why a call is refused, by the operation and the argument that is at fault.
#pragma once

#include <expected>
#include <string_view>

#include "kernel_templates/registry.h"
#include "runtime/base/error.h"

namespace dorajit::launch {

// "OP: argument `x` is missing; pass a tensor", of which `what` is the end.
std::unexpected<Error> refuse(StatusCode code, const kernels::Operation& operation,
                              const kernels::Operand& operand, std::string_view what);

}  // namespace dorajit::launch
