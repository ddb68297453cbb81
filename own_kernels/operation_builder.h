// Finds out whether the parts of a description go together, and makes the operation of it.
#pragma once

#include <memory>

#include "own_kernels/description.h"
#include "own_kernels/own_operation.h"
#include "runtime/base/error.h"

namespace dorajit::own_kernels {

// kInvalidArgument by the field. `select_template` and `why_unsupported` are left to the caller.
Result<std::unique_ptr<OwnOperation>> build_operation(Description description);

}  // namespace dorajit::own_kernels
