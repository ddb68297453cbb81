#include "runtime/launch/check_call.h"

#include <array>
#include <bit>
#include <cstdint>
#include <format>
#include <string>

#include "kernel_templates/sizes.h"
#include "runtime/launch/size_limit.h"

namespace dorajit::launch {
namespace {

using kernels::Broadcast;
using kernels::Operand;
using kernels::OperandRole;
using kernels::Operation;
using kernels::Presence;

constexpr std::uintptr_t kWorkspaceAlignment = 16;

std::string device_name(const DeviceId& device) {
  return device.kind == kernels::DeviceKind::kCpu ? "the CPU"
                                                  : std::format("CUDA device {}", device.ordinal);
}

std::unexpected<Error> refuse(StatusCode code, const Operation& op, const Operand& operand,
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

bool is_empty(const TensorView& tensor) { return tensor.rows == 0 || tensor.cols == 0; }

bool is_same(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.type == b.type && a.rows == b.rows &&
         stride_bytes(a) == stride_bytes(b);
}

bool overlaps(const TensorView& a, const TensorView& b) {
  if (end_address(a) <= address(b) || end_address(b) <= address(a)) return false;
  // Column windows of one wider buffer lie interleaved without touching.
  if (a.rows > 1 && b.rows > 1 && stride_bytes(a) == stride_bytes(b) && stride_bytes(a) > 0) {
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

// The sizes of a call's dimensions, bound by its operands one after the other.
struct Binding {
  const Call& call;
  kernels::Sizes sizes{};
  std::array<int, kernels::kMaxDimensions> bound_by{-1, -1, -1};  // an operand; -1 before

  [[nodiscard]] bool is_bound(int dimension) const { return bound_by[at(dimension)] >= 0; }
  static std::size_t at(int dimension) { return static_cast<std::size_t>(dimension); }
};

bool has_derived_size(const Operation& op, const Operand& operand) {
  const kernels::Dimension& inner = op.dimensions[Binding::at(operand.shape.inner)];
  return inner.keying == kernels::Keying::kDerived;
}

// A dimension whose size another operand gave in another way.
std::unexpected<Error> refuse_size(const Binding& binding, const Operand& operand,
                                   const TensorView& tensor, int dimension, std::int64_t size) {
  const Operation& op = *binding.call.operation;
  const auto by = static_cast<std::size_t>(binding.bound_by[Binding::at(dimension)]);
  const Operand& other = op.operands[by];
  const TensorView& there = binding.call.operands[by];
  if (operand.shape == other.shape) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("is {} x {} but `{}` is {} x {}; give both the same shape",
                              tensor.rows, tensor.cols, other.name, there.rows, there.cols));
  }
  return refuse(StatusCode::kInvalidArgument, op, operand,
                std::format("has {} `{}` but `{}` has {}; give both as many", size,
                            op.dimensions[Binding::at(dimension)].name, other.name,
                            binding.sizes[Binding::at(dimension)]));
}

Status bind(Binding& binding, std::size_t index, int dimension, std::int64_t size) {
  if (!binding.is_bound(dimension)) {
    binding.sizes[Binding::at(dimension)] = size;
    binding.bound_by[Binding::at(dimension)] = static_cast<int>(index);
    return {};
  }
  if (binding.sizes[Binding::at(dimension)] == size) return {};
  return refuse_size(binding, binding.call.operation->operands[index], binding.call.operands[index],
                     dimension, size);
}

// Channels lie along the columns of the first operand, or along its rows, sample by sample.
Status bind_channels(Binding& binding, std::size_t index) {
  const Operation& op = *binding.call.operation;
  const Operand& operand = op.operands[index];
  const TensorView& tensor = binding.call.operands[index];
  const Operand& first = op.operands.front();
  const TensorView& reference = binding.call.operands.front();
  const bool is_row = tensor.rows == 1;
  if (binding.call.broadcast == Broadcast::kPerColumn) {
    if (!is_row || tensor.cols != reference.cols) {
      return refuse(StatusCode::kInvalidArgument, op, operand,
                    std::format("has {} x {} elements but `{}` has {} columns; give one element "
                                "per column",
                                tensor.rows, tensor.cols, first.name, reference.cols));
    }
  } else if (!is_row ||
             !(tensor.cols > 0 ? reference.rows % tensor.cols == 0 : reference.rows == 0)) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("has {} x {} elements but `{}` has {} rows, which is no multiple; "
                              "give one element per channel, the same channels for every sample",
                              tensor.rows, tensor.cols, first.name, reference.rows));
  }
  const int channels = operand.shape.inner;
  if (binding.is_bound(channels) && binding.sizes[Binding::at(channels)] != tensor.cols) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("has {} elements but there are {} channels", tensor.cols,
                              binding.sizes[Binding::at(channels)]));
  }
  return bind(binding, index, channels, tensor.cols);
}

Status check_shape(Binding& binding, std::size_t index) {
  const Operation& op = *binding.call.operation;
  const Operand& operand = op.operands[index];
  const TensorView& tensor = binding.call.operands[index];
  if (tensor.rows < 0 || tensor.cols < 0) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("has a negative size ({} x {})", tensor.rows, tensor.cols));
  }
  if (has_derived_size(op, operand)) return bind_channels(binding, index);
  if (operand.shape.is_matrix()) {
    DORAJIT_TRY(bind(binding, index, operand.shape.outer, tensor.rows));
  } else if (tensor.rows != 1) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("is {} x {}; give a vector of `{}`", tensor.rows, tensor.cols,
                              op.dimensions[Binding::at(operand.shape.inner)].name));
  }
  return bind(binding, index, operand.shape.inner, tensor.cols);
}

Status check_memory(const Operation& op, const Operand& operand, const TensorView& tensor) {
  const std::int64_t size = kernels::size_in_bytes(tensor.type);
  if (tensor.rows > 1 && tensor.row_stride < tensor.cols) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("has a row stride of {} elements but {} columns; rows may not "
                              "overlap, so pass a copy with distinct rows",
                              tensor.row_stride, tensor.cols));
  }
  if (tensor.data == nullptr) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  "is null; pass the address of its first element");
  }
  if (address(tensor) > UINTPTR_MAX - static_cast<std::uintptr_t>(kMostOperandBytes)) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("lies at {}, at the end of the address space; pass the address of "
                              "its first element",
                              tensor.data));
  }
  if (size > 1 && address(tensor) % static_cast<std::uintptr_t>(size) != 0) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("is not aligned to its elements of {} bytes", size));
  }
  return {};
}

Status check_span(const Operation& op, const Operand& operand, const TensorView& tensor) {
  if (span_bytes(tensor)) return {};
  return refuse(
      StatusCode::kInvalidArgument, op, operand,
      std::format("spans more than 2^47 bytes, which is all that a process can address "
                  "({} rows of {} columns with a stride of {} elements); check its "
                  "shape and strides",
                  tensor.rows, tensor.cols, tensor.rows > 1 ? tensor.row_stride : tensor.cols));
}

// Absent operands included.
kernels::Variant variant_of(const Call& call) {
  kernels::Variant variant{.operation = call.operation, .broadcast = call.broadcast};
  for (std::size_t i = 0; i < call.operands.size(); ++i) variant.types[i] = call.operands[i].type;
  if (variant.has_sum()) return variant;
  // What only the sum would read is not read.
  const Operation& op = *call.operation;
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    if (op.operands[i].presence == Presence::kForSum) {
      variant.types[i] = kernels::ElementType::kAbsent;
    }
  }
  return variant;
}

// Whether every operand that the call needs is there, and their element types go together.
Status check_variant(const Operation& op, const kernels::Variant& variant) {
  bool writes = false;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const Operand& operand = op.operands[i];
    writes = writes || (operand.role == OperandRole::kOutput && variant.has(i));
    if (variant.has(i) || operand.presence == Presence::kOptional) continue;
    if (operand.presence == Presence::kRequired) {
      return refuse(StatusCode::kInvalidArgument, op, operand, "is missing; pass a tensor");
    }
    if (variant.has_sum()) {
      return refuse(StatusCode::kInvalidArgument, op, operand,
                    std::format("is missing; `{}` is summed from it",
                                op.operands[static_cast<std::size_t>(op.sum_operand)].name));
    }
  }
  if (!writes) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: every output is left out; ask for at least one", op.name));
  }
  if (variant.broadcast == Broadcast::kPerRow && !op.has_broadcast) {
    return fail(StatusCode::kUnsupported,
                std::format("{}: no operand has one element per channel, so that channels cannot "
                            "lie along the rows",
                            op.name));
  }
  if (kernels::is_supported(variant)) return {};
  return fail(StatusCode::kUnsupported,
              std::format("{}: no kernel mixes f64 with other element types ({}); give all "
                          "operands f64, or none",
                          op.name, kernels::to_text(variant)));
}

Status check_overlap(const Operation& op, const Call& call, const kernels::Variant& variant,
                     std::size_t output) {
  const TensorView& written = call.operands[output];
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (i == output || !variant.has(i) || is_empty(call.operands[i]) ||
        !overlaps(written, call.operands[i])) {
      continue;
    }
    const bool may_be_in_place =
        op.operands[i].role == OperandRole::kInput && op.operands[output].shape.is_matrix();
    if (may_be_in_place && op.operands[i].shape == op.operands[output].shape &&
        is_same(written, call.operands[i])) {
      continue;
    }
    const std::string_view remedy =
        may_be_in_place
            ? "pass exactly that tensor (same address, type and strides) or memory of its own"
            : "pass memory of its own";
    return refuse(StatusCode::kInvalidArgument, op, op.operands[output],
                  std::format("overlaps `{}`; {}", op.operands[i].name, remedy));
  }
  return {};
}

Status check_workspace(const Operation& op, const Call& call, const CheckedCall& checked) {
  const kernels::Variant& variant = checked.variant;
  const std::int64_t needed = kernels::workspace_bytes(variant, checked.sizes);
  if (needed == 0) return {};
  if (call.workspace == nullptr || call.workspace_bytes < needed) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: `workspace` has {} bytes but {} are needed; ask "
                            "dorajit_operation_workspace how many",
                            op.name, call.workspace == nullptr ? 0 : call.workspace_bytes, needed));
  }
  const auto begin = std::bit_cast<std::uintptr_t>(call.workspace);
  if (begin % kWorkspaceAlignment != 0) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format("{}: `workspace` is not aligned to {} bytes", op.name, kWorkspaceAlignment));
  }
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (!variant.has(i)) continue;
    const TensorView& tensor = call.operands[i];
    if (begin < end_address(tensor) &&
        address(tensor) < begin + static_cast<std::uintptr_t>(needed)) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("{}: `workspace` overlaps `{}`; pass memory of its own", op.name,
                              op.operands[i].name));
    }
  }
  return {};
}

}  // namespace

Result<CheckedCall> check_shapes(const Call& call) {
  const Operation& op = *call.operation;
  const kernels::Variant variant = variant_of(call);
  DORAJIT_TRY(check_variant(op, variant));
  const TensorView& reference = call.operands.front();
  Binding binding{.call = call};
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (!variant.has(i)) continue;
    const TensorView& tensor = call.operands[i];
    DORAJIT_TRY(check_shape(binding, i));
    DORAJIT_TRY(check_span(op, op.operands[i], tensor));
    if (tensor.device != reference.device) {
      return refuse(StatusCode::kWrongDevice, op, op.operands[i],
                    std::format("is on {} but `{}` is on {}; move both to one device",
                                device_name(tensor.device), op.operands.front().name,
                                device_name(reference.device)));
    }
  }
  // Without an operand per channel nothing tells how many there are, and no kernel asks.
  for (std::size_t i = 0; i < op.dimensions.size(); ++i) {
    if (binding.bound_by[i] < 0) binding.sizes[i] = reference.cols;
  }
  return CheckedCall{.variant = variant, .sizes = binding.sizes};
}

Result<CheckedCall> check_call(const Call& call) {
  DORAJIT_ASSIGN(const CheckedCall checked, check_shapes(call));
  const Operation& op = *call.operation;
  const kernels::Variant& variant = checked.variant;
  const bool is_launched = !kernels::writes_nothing(variant, checked.sizes);
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (!is_launched || !variant.has(i) || is_empty(call.operands[i])) continue;
    // What is broadcast over no elements is not read.
    const bool is_broadcast =
        op.operands[i].role == OperandRole::kInput && has_derived_size(op, op.operands[i]);
    if (is_broadcast && is_empty(call.operands.front())) continue;
    DORAJIT_TRY(check_memory(op, op.operands[i], call.operands[i]));
  }
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const bool is_output = op.operands[i].role == OperandRole::kOutput;
    if (!is_output || !variant.has(i) || is_empty(call.operands[i])) continue;
    DORAJIT_TRY(check_overlap(op, call, variant, i));
  }
  if (is_launched) DORAJIT_TRY(check_workspace(op, call, checked));
  return checked;
}

}  // namespace dorajit::launch
