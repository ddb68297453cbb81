#include "runtime/launch/check_call.h"

#include <array>
#include <bit>
#include <cstdint>
#include <format>
#include <string>

namespace dorajit::launch {
namespace {

using kernels::OperandRole;
using kernels::OperandShape;
using kernels::OperandSpec;
using kernels::OpSpec;

std::string device_name(const DeviceId& device) {
  return device.kind == kernels::DeviceKind::kCpu ? "the CPU"
                                                  : std::format("CUDA device {}", device.ordinal);
}

std::unexpected<Error> refuse(StatusCode code, const OpSpec& op, const OperandSpec& operand,
                              std::string_view what) {
  return fail(code, std::format("{}: argument `{}` {}", op.name, operand.name, what));
}

std::uintptr_t address(const TensorView& tensor) {
  return std::bit_cast<std::uintptr_t>(tensor.data);
}

std::int64_t row_bytes(const TensorView& tensor) {
  return tensor.cols * kernels::size_in_bytes(tensor.type);
}

std::int64_t stride_bytes(const TensorView& tensor) {
  return tensor.rows > 1 ? tensor.row_stride * kernels::size_in_bytes(tensor.type)
                         : row_bytes(tensor);
}

// One past the last byte that the tensor reaches.
std::uintptr_t end_address(const TensorView& tensor) {
  return address(tensor) +
         static_cast<std::uintptr_t>((tensor.rows - 1) * stride_bytes(tensor) + row_bytes(tensor));
}

bool is_same(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.type == b.type && a.rows == b.rows &&
         stride_bytes(a) == stride_bytes(b);
}

bool overlaps(const TensorView& a, const TensorView& b) {
  if (end_address(a) <= address(b) || end_address(b) <= address(a)) return false;
  // Column windows of one wider buffer lie interleaved without touching.
  if (a.rows > 1 && b.rows > 1 && stride_bytes(a) == stride_bytes(b)) {
    const auto stride = static_cast<std::uintptr_t>(stride_bytes(a));
    const std::uintptr_t distance =
        address(b) >= address(a) ? address(b) - address(a) : address(a) - address(b);
    const std::uintptr_t shift = distance % stride;
    const std::uintptr_t offset = address(b) >= address(a) || shift == 0 ? shift : stride - shift;
    return offset < static_cast<std::uintptr_t>(row_bytes(a)) ||
           offset + static_cast<std::uintptr_t>(row_bytes(b)) > stride;
  }
  return true;
}

Status check_shape(const OpSpec& op, const OperandSpec& operand, const TensorView& tensor,
                   const OperandSpec& first, const TensorView& reference) {
  if (tensor.rows < 0 || tensor.cols < 0) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("has a negative size ({} x {})", tensor.rows, tensor.cols));
  }
  if (operand.shape == OperandShape::kMatrix) {
    if (tensor.rows != reference.rows || tensor.cols != reference.cols) {
      return refuse(
          StatusCode::kInvalidArgument, op, operand,
          std::format("is {} x {} but `{}` is {} x {}; give both the same shape", tensor.rows,
                      tensor.cols, first.name, reference.rows, reference.cols));
    }
  } else if (tensor.rows != 1 || tensor.cols != reference.cols) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("has {} x {} elements but `{}` has {} columns; give one element per "
                              "column",
                              tensor.rows, tensor.cols, first.name, reference.cols));
  }
  return {};
}

Status check_memory(const OpSpec& op, const OperandSpec& operand, const TensorView& tensor) {
  const std::int64_t size = kernels::size_in_bytes(tensor.type);
  if (tensor.rows > 1 && tensor.row_stride < tensor.cols) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("has a row stride of {} elements but {} columns; rows may not "
                              "overlap, so pass a copy with distinct rows",
                              tensor.row_stride, tensor.cols));
  }
  const std::int64_t stride = tensor.rows > 1 ? tensor.row_stride : tensor.cols;
  std::int64_t extent = 0;
  if (__builtin_mul_overflow(stride, size, &extent) ||
      __builtin_mul_overflow(extent, tensor.rows, &extent) ||
      extent > INT64_MAX - static_cast<std::int64_t>(address(tensor) & INT64_MAX)) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("spans more than 2^63 bytes ({} rows with a stride of {} elements)",
                              tensor.rows, stride));
  }
  if (tensor.data == nullptr) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  "is null; pass the address of its first element");
  }
  if (address(tensor) % static_cast<std::uintptr_t>(size) != 0) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("is not aligned to its elements of {} bytes", size));
  }
  return {};
}

Status check_types(const OpSpec& op, const Call& call) {
  kernels::Variant variant{.op = call.op, .types = {}};
  for (std::size_t i = 0; i < call.operands.size(); ++i) variant.types[i] = call.operands[i].type;
  if (kernels::is_supported(variant)) return {};
  return fail(StatusCode::kUnsupported,
              std::format("{}: no kernel mixes f64 with other element types ({}); give all "
                          "operands f64, or none",
                          op.name, kernels::to_text(variant)));
}

}  // namespace

Status check_call(const Call& call) {
  const OpSpec& op = kernels::spec(call.op);
  const TensorView& reference = call.operands.front();
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const TensorView& tensor = call.operands[i];
    DORAJIT_TRY(check_shape(op, op.operands[i], tensor, op.operands.front(), reference));
    if (tensor.device != reference.device) {
      return refuse(StatusCode::kWrongDevice, op, op.operands[i],
                    std::format("is on {} but `{}` is on {}; move both to one device",
                                device_name(tensor.device), op.operands.front().name,
                                device_name(reference.device)));
    }
  }
  DORAJIT_TRY(check_types(op, call));
  if (reference.rows == 0 || reference.cols == 0) return {};
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    DORAJIT_TRY(check_memory(op, op.operands[i], call.operands[i]));
  }
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i].role != OperandRole::kOutput) continue;
    const TensorView& output = call.operands[i];
    for (std::size_t j = 0; j < op.operands.size(); ++j) {
      if (i == j || !overlaps(output, call.operands[j])) continue;
      const bool in_place = op.operands[j].role == OperandRole::kInput &&
                            op.operands[j].shape == OperandShape::kMatrix &&
                            is_same(output, call.operands[j]);
      if (!in_place) {
        return refuse(StatusCode::kInvalidArgument, op, op.operands[i],
                      std::format("overlaps `{}` in part; pass exactly that tensor (same address, "
                                  "type and strides) or memory of its own",
                                  op.operands[j].name));
      }
    }
  }
  return {};
}

}  // namespace dorajit::launch
