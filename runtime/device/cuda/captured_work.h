// Work that was captured into a CUDA graph, so that its launches follow each other at the GPU's own
// pace, whatever the CPU needs to enqueue one.
#pragma once

#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/driver/cuda_driver.h"

namespace dorajit::device {

class CapturedWork {
 public:
  // Captures what `work` enqueues on the stream; nothing of it runs. The context must be current.
  static Result<CapturedWork> capture(const driver::CudaDriver& driver, driver::CuStream stream,
                                      const Enqueue& work);

  ~CapturedWork();
  CapturedWork(CapturedWork&& other) noexcept;
  CapturedWork& operator=(CapturedWork&&) = delete;

  // Brings the graph to the device, so that the first launch costs what later ones do.
  Status upload(driver::CuStream stream) const;
  Status launch(driver::CuStream stream) const;

 private:
  CapturedWork(const driver::CudaDriver& driver, driver::CuGraphExec graph)
      : driver_(driver), graph_(graph) {}

  const driver::CudaDriver& driver_;
  driver::CuGraphExec graph_;
};

}  // namespace dorajit::device
