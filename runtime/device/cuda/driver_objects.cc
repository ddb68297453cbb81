
#include "runtime/device/cuda/driver_objects.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "kernel_templates/integer_types.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::device {
namespace {

using driver::TensorMapType;

// Of elements that are not floating-point numbers the size counts: they are copied as they are, and
// zero is zero in each.
TensorMapType data_type_of(kernels::ElementType type) {
  switch (type) {
    case kernels::ElementType::kFloat16:
      return TensorMapType::kFloat16;
    case kernels::ElementType::kBfloat16:
      return TensorMapType::kBfloat16;
    case kernels::ElementType::kFloat32:
      return TensorMapType::kFloat32;
    case kernels::ElementType::kFloat64:
      return TensorMapType::kFloat64;
    default:
      break;
  }
  switch (kernels::element_size(type)) {
    case 1:
      return TensorMapType::kUint8;
    case 2:
      return TensorMapType::kUint16;
    case 4:
      return TensorMapType::kUint32;
    default:
      return TensorMapType::kUint64;
  }
}

int swizzle_of(int bytes) {
  constexpr int kSmallest = 32;
  return bytes == 0 ? 0
                    : driver::kTensorMapSwizzle32 + std::countr_zero(unsigned(bytes / kSmallest));
}

Status encode(const driver::CudaDriver& driver, const kernels::TensorBox& box,
              driver::TensorMap& map) {
  constexpr int kMaxRank = kernels::TensorBox::kMaxRank;
  unsigned long long sizes[kMaxRank] = {};
  unsigned long long strides[kMaxRank] = {};
  unsigned shape[kMaxRank] = {};
  std::ranges::copy(box.sizes, sizes);
  std::ranges::copy(box.strides, strides);
  std::ranges::copy(box.box, shape);
  const unsigned steps[kMaxRank] = {1, 1, 1, 1, 1};
  DORAJIT_CUDA_TRY(driver, tensor_map_encode, &map, data_type_of(box.type),
                   static_cast<unsigned>(box.rank), box.data, sizes, strides, shape, steps,
                   driver::kTensorMapNotInterleaved, swizzle_of(box.swizzle_bytes),
                   driver::kTensorMapPromotion256, driver::kTensorMapZeros);
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
