#include "bindings/c/call_operands.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <format>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernel_templates/broadcast.h"
#include "kernel_templates/integer_types.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/launch/problem.h"

namespace dorajit::bindings {
namespace {

using kernels::DeviceKind;
using kernels::ElementType;
using kernels::Operation;
using kernels::Presence;

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
// The codes of float8 are those of DLPack 1.1.
constexpr KnownType kOfOwnKernels[] = {
    {10, 8, kernels::kFloat8E4m3},   {12, 8, kernels::kFloat8E5m2},
    {kDLInt, 8, kernels::kInt8},     {kDLInt, 16, kernels::kInt16},
    {kDLInt, 32, kernels::kInt32},   {kDLInt, 64, kernels::kInt64},
    {kDLUInt, 8, kernels::kUint8},   {kDLUInt, 16, kernels::kUint16},
    {kDLUInt, 32, kernels::kUint32}, {kDLUInt, 64, kernels::kUint64},
    {kBoolCode, 8, kernels::kBool}};

std::optional<ElementType> element_type(const DLDataType& type, bool is_own_kernel) {
  const auto is_wanted = [&](const KnownType& known) {
    return type.lanes == 1 && type.code == known.code && type.bits == known.bits;
  };
  const auto* const real = std::ranges::find_if(kFloats, is_wanted);
  if (real != std::end(kFloats)) return real->type;
  if (!is_own_kernel) return std::nullopt;
  const auto* const other = std::ranges::find_if(kOfOwnKernels, is_wanted);
  return other != std::end(kOfOwnKernels) ? std::optional(other->type) : std::nullopt;
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
                                           bool is_own_kernel) {
  return refuse(
      name, StatusCode::kUnsupported,
      std::format("has elements of DLPack type code {} with {} bits and {} lanes; convert "
                  "it to {}",
                  type.code, type.bits, type.lanes,
                  is_own_kernel ? "float32, float16, bfloat16, float64, float8_e4m3fn, "
                                  "float8_e5m2, bool or an integer of 8, 16, 32 or 64 bits"
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

// The rows x columns that a DLTensor describes (conventions of dorajit.h); its last `column_dims`
// dimensions form the columns. Checks what a TensorView cannot express: a null shape, the element
// type, the device, strides that do not flatten, sizes beyond 64 bits. Messages name the function,
// the argument and the remedy. Allocates only for an error.
//
// Only own kernels have elements of integers and of float8, and tensors whose strides may be any
// (`has_strides`).
Result<launch::TensorView> tensor_from_dlpack(std::string_view function, std::string_view argument,
                                              const DLTensor* tensor, int column_dims,
                                              bool is_own_kernel, bool has_strides = false) {
  const Name name{.function = function, .argument = argument};
  if (tensor == nullptr) {
    return refuse(name, StatusCode::kInvalidArgument, "is null; pass a DLTensor");
  }
  DORAJIT_TRY(check_shape(name, *tensor));
  const auto type = element_type(tensor->dtype, is_own_kernel);
  if (!type) return refuse_element_type(name, tensor->dtype, is_own_kernel);
  const auto device = device_id(tensor->device);
  if (!device) return refuse_device(name, tensor->device);

  const int row_dims = std::max(tensor->ndim - column_dims, 0);
  launch::TensorView view{.data = nullptr, .type = *type, .device = *device};
  DORAJIT_TRY(count_elements(name, *tensor, static_cast<std::size_t>(row_dims), view));
  view.row_stride = view.cols;
  const bool may_have_gaps = view.rows > 0 && view.cols > 0 && tensor->strides != nullptr;
  view.shape = {tensor->shape, static_cast<std::size_t>(tensor->ndim)};
  if (may_have_gaps && has_strides) {
    if (!is_compact(*tensor)) {
      view.strides = {tensor->strides, view.shape.size()};
      if (!launch::place_rows(view)) {
        return refuse(name, StatusCode::kInvalidArgument,
                      "has a negative stride, or spans more than 2^63 elements; check its strides");
      }
    }
  } else if (may_have_gaps) {
    DORAJIT_ASSIGN(view.row_stride, find_row_stride(name, *tensor, row_dims, view.cols));
  }
  DORAJIT_ASSIGN(view.data, first_element(name, *tensor));
  return view;
}

struct ChannelLayout {
  kernels::Broadcast broadcast = kernels::Broadcast::kPerColumn;
  // How many dimensions of the matrix, counted from the last, form its columns.
  int column_dims = 1;

  friend bool operator==(const ChannelLayout&, const ChannelLayout&) = default;
};

// A magnitude stored as [out, 1] belongs to the columns. Over a matrix that is not square, its size
// shows the mistake. Logged once; later calls take no lock.
void warn_of_square_matrix(std::string_view function, std::string_view argument,
                           std::int64_t size) {
  static constinit std::atomic<bool> is_said = false;
  if (is_said.load(std::memory_order_relaxed) || log_level() < LogLevel::kWarning) return;
  if (is_said.exchange(true)) return;
  log(LogLevel::kWarning,
      std::format("{}: argument `{}` is [{}, 1] over a matrix of [{}, {}] and is taken for one "
                  "element per row; pass [{}] for one per column, or, where rows are meant, [1, "
                  "{}, 1] over [1, {}, {}] (logged once)",
                  function, argument, size, size, size, size, size, size, size));
}

// Derives the channel layout from the shapes of a matrix and of the tensor that is broadcast over
// it. Shapes are aligned at their last dimensions, as in NumPy and PyTorch. Tensors of one
// dimension, and tensors whose only dimension of more than one element is the last, are per column.
// [1, C, 1, 1] and similar shapes are per row if the matrix has C elements along that dimension.
// Per-column sizes and shapes that are invalid on their own are reported by later checks. The first
// [R, 1] over [R, R] of a process logs a warning.
Result<ChannelLayout> channel_layout(std::string_view function, std::string_view argument,
                                     const DLTensor& matrix, const DLTensor& broadcast) {
  if (broadcast.ndim <= 1 || broadcast.shape == nullptr) return {};
  if (matrix.ndim < 1 || matrix.shape == nullptr) return {};
  int axis = -1;  // index of the channel dimension, counted from the last one
  for (int i = 0; i < broadcast.ndim; ++i) {
    if (broadcast.shape[broadcast.ndim - 1 - i] == 1) continue;
    if (axis >= 0) {
      return fail(StatusCode::kUnsupported,
                  std::format("{}: argument `{}` has more than one dimension of several elements; "
                              "its channels must lie along one dimension",
                              function, argument));
    }
    axis = i;
  }
  if (axis < 0) {
    // A single channel: per row, unless the matrix has one column as well.
    axis = matrix.ndim > 1 && matrix.shape[matrix.ndim - 1] != 1 ? 1 : 0;
  }
  if (axis == 0) return {};
  if (axis >= matrix.ndim) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format(
            "{}: argument `{}` has more dimensions than the tensor that it is broadcast over",
            function, argument));
  }
  const std::int64_t channels = broadcast.shape[broadcast.ndim - 1 - axis];
  const std::int64_t size = matrix.shape[matrix.ndim - 1 - axis];
  // Negative sizes are reported by the checks of their own tensor.
  if (channels != 1 && channels != size && channels >= 0 && size >= 0) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format("{}: argument `{}` has {} channels but dimension {} of the tensor that it is "
                    "broadcast over has {} elements; give one element for each",
                    function, argument, channels, matrix.ndim - 1 - axis, size));
  }
  if (broadcast.ndim == 2 && matrix.ndim == 2 && channels > 1 && size == matrix.shape[1]) {
    warn_of_square_matrix(function, argument, size);
  }
  return ChannelLayout{.broadcast = kernels::Broadcast::kPerRow, .column_dims = axis};
}

// Flattens all dimensions of the tensor into one row.
Result<launch::TensorView> vector_from_dlpack(const Operation& operation, std::size_t operand,
                                              const DLTensor* tensor) {
  const int all = tensor == nullptr ? 1 : tensor->ndim;
  return tensor_from_dlpack(operation.name, operation.operands[operand].name, tensor,
                            std::max(all, 1), operation.mixes_all_types,
                            operation.operands[operand].shape.is_exact);
}

// Whether an operand is an input with one element per channel.
bool is_input_per_channel(const Operation& operation, std::size_t operand) {
  const kernels::Operand& known = operation.operands[operand];
  const auto dimension = static_cast<std::size_t>(known.shape.inner);
  return known.role == kernels::OperandRole::kInput && !known.shape.is_matrix() &&
         operation.dimensions[dimension].keying == kernels::Keying::kDerived;
}

}  // namespace

Status Operands::read(const Operation& operation, std::span<const DLTensor* const> tensors) {
  ChannelLayout layout;
  std::string_view broadcast_before;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (is_input_per_channel(operation, i) && tensors[i] != nullptr && tensors.front() != nullptr) {
      const std::string_view name = operation.operands[i].name;
      DORAJIT_ASSIGN(const ChannelLayout found,
                     channel_layout(operation.name, name, *tensors.front(), *tensors[i]));
      if (!broadcast_before.empty() && found != layout) {
        return fail(
            StatusCode::kUnsupported,
            std::format("{}: argument `{}` has its channels along a different dimension than "
                        "`{}`; give both the same shape",
                        operation.name, name, broadcast_before));
      }
      layout = found;
      broadcast_before = name;
    }
  }
  // One row is the fastest layout.
  if (operation.is_one_row && tensors.front() != nullptr) {
    layout.column_dims = std::max(tensors.front()->ndim, 1);
  }
  broadcast = layout.broadcast;
  const auto sum = static_cast<std::size_t>(operation.sum_operand);
  const bool has_sum = sum < tensors.size() && tensors[sum] != nullptr;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Presence presence = operation.operands[i].presence;
    const bool is_left_out = tensors[i] == nullptr && presence != Presence::kRequired;
    if (is_left_out || (presence == Presence::kForSum && !has_sum)) {
      views[i].type = kernels::ElementType::kAbsent;
    } else if (operation.operands[i].shape.is_matrix()) {
      DORAJIT_ASSIGN(views[i],
                     tensor_from_dlpack(operation.name, operation.operands[i].name, tensors[i],
                                        layout.column_dims, operation.mixes_all_types));
    } else {
      DORAJIT_ASSIGN(views[i], vector_from_dlpack(operation, i, tensors[i]));
    }
  }
  return {};
}

}  // namespace dorajit::bindings
