// Tensor maps for the copy engine, from what a template says of its boxes.
#pragma once

#include <array>

#include "kernel_templates/tensor_box.h"
#include "runtime/base/error.h"
#include "runtime/driver/cuda_driver.h"

namespace dorajit::device {

using TensorMaps = std::array<driver::TensorMap, kernels::kTensorMaps>;

// Encodes on the host alone: nothing is allocated, and no stream or context is touched. The maps of
// null boxes are zeros; those beyond the last box are left as they are.
Status encode_tensor_maps(const driver::CudaDriver& driver, const kernels::TensorBoxes& boxes,
                          TensorMaps& maps);

}  // namespace dorajit::device
