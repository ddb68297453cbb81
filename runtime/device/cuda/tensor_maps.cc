#include "runtime/device/cuda/tensor_maps.h"

#include <cstddef>

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
