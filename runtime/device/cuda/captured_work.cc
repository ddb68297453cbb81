#include "runtime/device/cuda/captured_work.h"

#include <utility>

#include "runtime/base/scope_exit.h"

namespace dorajit::device {

Result<CapturedWork> CapturedWork::capture(const driver::CudaDriver& driver,
                                           driver::CuStream stream, const Enqueue& work) {
  DORAJIT_CUDA_TRY(driver, stream_begin_capture, stream, driver::kCaptureRelaxed);
  const Status enqueued = work(stream);
  driver::CuGraph graph = nullptr;
  // Ends the capture even if the work failed: the stream must not stay in capture mode.
  const driver::CuResult ended = driver.stream_end_capture(stream, &graph);
  const ScopeExit destroy([&] {
    if (graph != nullptr) driver.graph_destroy(graph);
  });
  DORAJIT_TRY(enqueued);
  if (ended != driver::kCudaSuccess) {
    return std::unexpected(driver.error("cuStreamEndCapture", ended));
  }
  driver::CuGraphExec executable = nullptr;
  DORAJIT_CUDA_TRY(driver, graph_instantiate, &executable, graph, 0);
  return CapturedWork(driver, executable);
}

CapturedWork::CapturedWork(CapturedWork&& other) noexcept
    : driver_(other.driver_), graph_(std::exchange(other.graph_, nullptr)) {}

CapturedWork::~CapturedWork() {
  if (graph_ != nullptr) driver_.graph_exec_destroy(graph_);
}

Status CapturedWork::upload(driver::CuStream stream) const {
  DORAJIT_CUDA_TRY(driver_, graph_upload, graph_, stream);
  return {};
}

Status CapturedWork::launch(driver::CuStream stream) const {
  DORAJIT_CUDA_TRY(driver_, graph_launch, graph_, stream);
  return {};
}

}  // namespace dorajit::device
