// Converts the tensors of the C ABI to the runtime's tensor views.
#pragma once

#include <dlpack/dlpack.h>

#include <string_view>

#include "runtime/base/error.h"
#include "runtime/launch/tensor_view.h"

namespace dorajit::bindings {

// The rows x columns that a DLTensor describes (conventions of dorajit.h); its last `column_dims`
// dimensions form the columns. Checks what a TensorView cannot express: a null shape, the element
// type, the device, strides that do not flatten, sizes beyond 64 bits. Messages name the function,
// the argument and the remedy. Allocates only for an error.
//
// Elements are integers only where `serves_integers`.
Result<launch::TensorView> tensor_from_dlpack(std::string_view function, std::string_view argument,
                                              const DLTensor* tensor, int column_dims,
                                              bool serves_integers);

}  // namespace dorajit::bindings
