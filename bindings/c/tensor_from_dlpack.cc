#include "bindings/c/tensor_from_dlpack.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <format>
#include <iterator>
#include <optional>
#include <span>
#include <string>

#include "kernel_templates/integer_types.h"

namespace dorajit::bindings {
namespace {

using kernels::DeviceKind;
using kernels::ElementType;

struct Name {
  std::string_view function;
  std::string_view argument;
};

std::unexpected<Error> refuse(const Name& name, StatusCode code, std::string_view what) {
  return fail(code, std::format("{}: argument `{}` {}", name.function, name.argument, what));
}

constexpr std::uint8_t kBoolCode = 6;  // kDLBool, which DLPack has since 0.8

struct KnownType {
  std::uint8_t code;
  std::uint8_t bits;
  ElementType type;
};
constexpr KnownType kFloats[] = {{kDLFloat, 32, ElementType::kFloat32},
                                 {kDLFloat, 16, ElementType::kFloat16},
                                 {kDLFloat, 64, ElementType::kFloat64},
                                 {kDLBfloat, 16, ElementType::kBfloat16}};
constexpr KnownType kIntegers[] = {{kDLInt, 8, kernels::kInt8},     {kDLInt, 16, kernels::kInt16},
                                   {kDLInt, 32, kernels::kInt32},   {kDLInt, 64, kernels::kInt64},
                                   {kDLUInt, 8, kernels::kUint8},   {kDLUInt, 16, kernels::kUint16},
                                   {kDLUInt, 32, kernels::kUint32}, {kDLUInt, 64, kernels::kUint64},
                                   {kBoolCode, 8, kernels::kBool}};

std::optional<ElementType> element_type(const DLDataType& type, bool serves_integers) {
  const auto is_wanted = [&](const KnownType& known) {
    return type.lanes == 1 && type.code == known.code && type.bits == known.bits;
  };
  const auto* const real = std::ranges::find_if(kFloats, is_wanted);
  if (real != std::end(kFloats)) return real->type;
  if (!serves_integers) return std::nullopt;
  const auto* const integer = std::ranges::find_if(kIntegers, is_wanted);
  return integer != std::end(kIntegers) ? std::optional(integer->type) : std::nullopt;
}

std::optional<launch::DeviceId> device_id(const DLDevice& device) {
  // Compared as a number: a caller may use a newer dlpack.h with additional device types.
  switch (static_cast<int>(device.device_type)) {
    case kDLCPU:
    case kDLCUDAHost:
      return launch::DeviceId{.kind = DeviceKind::kCpu, .ordinal = 0};
    case kDLCUDA:
    case kDLCUDAManaged:
      return launch::DeviceId{.kind = DeviceKind::kCuda, .ordinal = device.device_id};
    default:
      return std::nullopt;
  }
}

std::unexpected<Error> refuse_device(const Name& name, const DLDevice& device) {
  return refuse(name, StatusCode::kUnsupported,
                std::format("is on a device of DLPack type {}; move it to the CPU (1) or to a CUDA "
                            "device (2)",
                            static_cast<int>(device.device_type)));
}

std::unexpected<Error> refuse_element_type(const Name& name, const DLDataType& type,
                                           bool serves_integers) {
  return refuse(
      name, StatusCode::kUnsupported,
      std::format("has elements of DLPack type code {} with {} bits and {} lanes; convert "
                  "it to {}",
                  type.code, type.bits, type.lanes,
                  serves_integers ? "float32, float16, bfloat16, float64, bool or an integer "
                                    "of 8, 16, 32 or 64 bits"
                                  : "float32, float16, bfloat16 or float64"));
}

Status check_shape(const Name& name, const DLTensor& tensor) {
  if (tensor.ndim < 1) {
    return refuse(
        name, StatusCode::kInvalidArgument,
        std::format("has {} dimensions; give it at least one (.reshape(1, -1))", tensor.ndim));
  }
  if (tensor.shape == nullptr) {
    return refuse(name, StatusCode::kInvalidArgument,
                  std::format("has {} dimensions but a null shape; point `shape` at their sizes",
                              tensor.ndim));
  }
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] < 0) {
      return refuse(name, StatusCode::kInvalidArgument,
                    std::format("has a negative size ({} in dimension {}); sizes are counts of "
                                "elements",
                                tensor.shape[i], i));
    }
  }
  return {};
}

// The product of sizes; nothing beyond 64 bits.
std::optional<std::int64_t> product_of(std::span<const std::int64_t> sizes) {
  std::int64_t product = 1;
  bool is_too_large = false;
  for (const std::int64_t size : sizes) {
    if (size == 0) return 0;
    is_too_large = is_too_large || __builtin_mul_overflow(product, size, &product);
  }
  return is_too_large ? std::nullopt : std::optional(product);
}

// Sets the rows, which the first `row_dims` dimensions form, and the columns.
Status count_elements(const Name& name, const DLTensor& tensor, std::size_t row_dims,
                      launch::TensorView& view) {
  const std::span sizes(tensor.shape, static_cast<std::size_t>(tensor.ndim));
  const auto rows = product_of(sizes.first(row_dims));
  const auto cols = product_of(sizes.subspan(row_dims));
  std::int64_t all = 0;
  if (!rows || !cols || __builtin_mul_overflow(*rows, *cols, &all)) {
    return refuse(name, StatusCode::kInvalidArgument,
                  "has more than 2^63 elements; check its shape");
  }
  view.rows = *rows;
  view.cols = *cols;
  return {};
}

// The stride of dimensions [first, last) flattened into one; nothing if they have at most one
// element.
Result<std::optional<std::int64_t>> flat_stride(const Name& name, const DLTensor& tensor, int first,
                                                int last) {
  int inner = -1;  // the previous dimension with more than one element
  std::optional<std::int64_t> stride;
  for (int i = last - 1; i >= first; --i) {
    if (tensor.shape[i] == 1) continue;
    if (inner < 0) {
      stride = tensor.strides[i];
    } else if (std::int64_t expected = 0;
               __builtin_mul_overflow(tensor.strides[inner], tensor.shape[inner], &expected) ||
               tensor.strides[i] != expected) {
      return refuse(name, StatusCode::kInvalidArgument,
                    std::format("has dimensions {} and {} that do not flatten into one (strides {} "
                                "and {}); pass a compact copy, as .contiguous() makes it",
                                i, inner, tensor.strides[i], tensor.strides[inner]));
    }
    inner = i;
  }
  return stride;
}

// Whether the elements lie in the order of the dimensions, without gaps.
bool is_compact(const DLTensor& tensor) {
  std::int64_t stride = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
    stride *= tensor.shape[i];
  }
  return true;
}

// The row stride of a tensor that has elements and strides.
Result<std::int64_t> find_row_stride(const Name& name, const DLTensor& tensor, int row_dims,
                                     std::int64_t cols) {
  if (is_compact(tensor)) return cols;
  DORAJIT_ASSIGN(const auto column_stride, flat_stride(name, tensor, row_dims, tensor.ndim));
  if (column_stride.value_or(1) != 1) {
    return refuse(name, StatusCode::kInvalidArgument,
                  std::format("has a stride of {} elements in its last dimension; make that "
                              "dimension contiguous, as .contiguous() does",
                              *column_stride));
  }
  DORAJIT_ASSIGN(const auto row_stride, flat_stride(name, tensor, 0, row_dims));
  if (row_stride.value_or(cols) < cols) {
    return refuse(name, StatusCode::kInvalidArgument,
                  std::format("has a row stride of {} elements but {} columns; rows may not "
                              "overlap, so pass a copy with distinct rows, as .contiguous() "
                              "makes it",
                              *row_stride, cols));
  }
  return row_stride.value_or(cols);
}

Result<void*> first_element(const Name& name, const DLTensor& tensor) {
  if (tensor.data == nullptr) return nullptr;
  std::uintptr_t address = 0;
  if (__builtin_add_overflow(std::bit_cast<std::uintptr_t>(tensor.data), tensor.byte_offset,
                             &address)) {
    return refuse(
        name, StatusCode::kInvalidArgument,
        std::format("has a byte_offset of {}, beyond the address space", tensor.byte_offset));
  }
  return std::bit_cast<void*>(address);
}

}  // namespace

Result<launch::TensorView> tensor_from_dlpack(std::string_view function, std::string_view argument,
                                              const DLTensor* tensor, int column_dims,
                                              bool serves_integers) {
  const Name name{.function = function, .argument = argument};
  if (tensor == nullptr) {
    return refuse(name, StatusCode::kInvalidArgument, "is null; pass a DLTensor");
  }
  DORAJIT_TRY(check_shape(name, *tensor));
  const auto type = element_type(tensor->dtype, serves_integers);
  if (!type) return refuse_element_type(name, tensor->dtype, serves_integers);
  const auto device = device_id(tensor->device);
  if (!device) return refuse_device(name, tensor->device);

  const int row_dims = std::max(tensor->ndim - column_dims, 0);
  launch::TensorView view{.data = nullptr, .type = *type, .device = *device};
  DORAJIT_TRY(count_elements(name, *tensor, static_cast<std::size_t>(row_dims), view));
  view.row_stride = view.cols;
  if (view.rows > 0 && view.cols > 0 && tensor->strides != nullptr) {
    DORAJIT_ASSIGN(view.row_stride, find_row_stride(name, *tensor, row_dims, view.cols));
  }
  view.shape = {tensor->shape, static_cast<std::size_t>(tensor->ndim)};
  DORAJIT_ASSIGN(view.data, first_element(name, *tensor));
  return view;
}

}  // namespace dorajit::bindings
