// Objects that the driver makes for launches: graphs of captured work, and tensor maps.
#pragma once

#include <array>

#include "kernel_templates/launch_shape.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/driver/cuda_driver.h"

namespace dorajit::device {

// Work captured into a CUDA graph, so that its launches run back to back at the GPU's own pace,
// independent of how fast the CPU can enqueue them.
class CapturedWork {
 public:
  // Captures what `work` enqueues on the stream without running it. The context must be current.
  static Result<CapturedWork> capture(const driver::CudaDriver& driver, driver::CuStream stream,
                                      const Enqueue& work);

  ~CapturedWork();
  CapturedWork(CapturedWork&& other) noexcept;
  CapturedWork& operator=(CapturedWork&&) = delete;

  // Uploads the graph to the device, so that the first launch costs as much as later ones.
  Status upload(driver::CuStream stream) const;
  Status launch(driver::CuStream stream) const;

 private:
  CapturedWork(const driver::CudaDriver& driver, driver::CuGraphExec graph)
      : driver_(driver), graph_(graph) {}

  const driver::CudaDriver& driver_;
  driver::CuGraphExec graph_;
};

// Tensor maps (descriptors of the tensor memory accelerator) for the boxes of a template.
using TensorMaps = std::array<driver::TensorMap, kernels::kTensorMaps>;
static_assert(sizeof(driver::TensorMap) == kernels::KernelParameters::kTensorMapBytes);

// Encodes on the host: no allocation, no stream, no context. The maps of null boxes are zeroed;
// maps beyond the last box are not changed.
Status encode_tensor_maps(const driver::CudaDriver& driver, const kernels::TensorBoxes& boxes,
                          TensorMaps& maps);

}  // namespace dorajit::device
