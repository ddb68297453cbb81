
#include "runtime/device/cuda/driver_objects.h"

#include <cstddef>
#include <utility>

#include "runtime/base/file_descriptor.h"

namespace dorajit::device {
namespace {

constexpr unsigned kRowBytes = 128;

int data_type_of(kernels::ElementType type) {
  switch (type) {
    case kernels::ElementType::kFloat16:
      return driver::kTensorMapFloat16;
    case kernels::ElementType::kBfloat16:
      return driver::kTensorMapBfloat16;
    default:
      return driver::kTensorMapFloat32;
  }
}

Status encode(const driver::CudaDriver& driver, const kernels::TensorBox& box,
              driver::TensorMap& map) {
  const auto size = static_cast<unsigned>(kernels::size_in_bytes(box.type));
  const unsigned long long sizes[] = {static_cast<unsigned long long>(box.columns),
                                      static_cast<unsigned long long>(box.rows)};
  const unsigned long long strides[] = {static_cast<unsigned long long>(box.row_bytes)};
  const unsigned shape[] = {kRowBytes / size, static_cast<unsigned>(box.box_rows)};
  const unsigned steps[] = {1, 1};
  DORAJIT_CUDA_TRY(driver, tensor_map_encode, &map, data_type_of(box.type), 2, box.data, sizes,
                   strides, shape, steps, driver::kTensorMapNotInterleaved,
                   driver::kTensorMapSwizzle128, driver::kTensorMapPromotion256,
                   driver::kTensorMapZeros);
  return {};
}

}  // namespace

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

Status encode_tensor_maps(const driver::CudaDriver& driver, const kernels::TensorBoxes& boxes,
                          TensorMaps& maps) {
  for (std::size_t i = 0; i < boxes.count; ++i) {
    maps[i] = {};
    if (boxes.boxes[i].data == nullptr) continue;
    if (driver.tensor_map_encode == nullptr) {
      return fail(StatusCode::kUnsupported,
                  "the driver makes no tensor maps; install one for CUDA 12 or newer");
    }
    DORAJIT_TRY(encode(driver, boxes.boxes[i], maps[i]));
  }
  return {};
}

}  // namespace dorajit::device
