// Tensor maps (descriptors of the tensor memory accelerator) for the boxes of a template.
#pragma once

#include <array>

#include "kernel_templates/tensor_box.h"
#include "runtime/base/error.h"
#include "runtime/driver/cuda_driver.h"

namespace dorajit::device {

using TensorMaps = std::array<driver::TensorMap, kernels::kTensorMaps>;

// Encodes on the host: no allocation, no stream, no context. The maps of null boxes are zeroed;
// maps beyond the last box are not changed.
Status encode_tensor_maps(const driver::CudaDriver& driver, const kernels::TensorBoxes& boxes,
                          TensorMaps& maps);

}  // namespace dorajit::device
