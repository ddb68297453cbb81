#include "runtime/launch/check_call.h"

#include <bit>
#include <cstdint>
#include <format>
#include <string>

#include "kernel_templates/integer_types.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/template.h"
#include "runtime/launch/dimension_sizes.h"
#include "runtime/launch/problem.h"

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

std::uintptr_t address(const TensorView& tensor) {
  return std::bit_cast<std::uintptr_t>(tensor.data);
}

std::int64_t row_bytes(const TensorView& tensor) {
  return tensor.cols * kernels::element_size(tensor.type);
}

std::int64_t stride_bytes(const TensorView& tensor) {
  return tensor.rows > 1 ? tensor.row_stride * kernels::element_size(tensor.type)
                         : row_bytes(tensor);
}

// The address after the last byte of the tensor.
std::uintptr_t end_address(const TensorView& tensor) {
  return address(tensor) +
         static_cast<std::uintptr_t>((tensor.rows - 1) * stride_bytes(tensor) + row_bytes(tensor));
}

bool is_empty(const TensorView& tensor) { return tensor.rows == 0 || tensor.cols == 0; }

bool is_same(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.type == b.type && a.rows == b.rows &&
         stride_bytes(a) == stride_bytes(b);
}

// Whether an operand has the dimensions of a matrix. Matrices have no leading dimensions, and
// comparing empty spans takes a tenth of the CPU time of a call in place.
bool is_same_matrix(const kernels::OperandShape& shape, const kernels::OperandShape& matrix) {
  return shape.outer == matrix.outer && shape.inner == matrix.inner;
}

bool overlaps(const TensorView& a, const TensorView& b) {
  if (end_address(a) <= address(b) || end_address(b) <= address(a)) return false;
  // Column windows of one wider buffer alternate in memory without overlapping.
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

Status check_memory(const Operation& op, const Operand& operand, const TensorView& tensor) {
  const std::int64_t size = kernels::element_size(tensor.type);
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
  if (address(tensor) > UINTPTR_MAX - static_cast<std::uintptr_t>(kMaxOperandBytes)) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("lies at {}, at the end of the address space; pass the address of "
                              "its first element",
                              tensor.data));
  }
  if (size > 1 && address(tensor) % static_cast<std::uintptr_t>(size) != 0) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("is not aligned to its elements of {} bytes", size));
  }
  if (operand.alignment > 0 && address(tensor) % operand.alignment != 0) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("lies at {}, which is not aligned to {} bytes; pass a copy, as "
                              ".clone() makes it",
                              tensor.data, operand.alignment));
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

// The variant of the operands as given; absent operands are included.
kernels::Variant variant_of(const Call& call) {
  kernels::Variant variant{.operation = call.operation, .broadcast = call.broadcast};
  for (std::size_t i = 0; i < call.operands.size(); ++i) variant.types[i] = call.operands[i].type;
  if (variant.has_sum()) return variant;
  // An operand that only the sum reads is absent if the sum is not computed.
  const Operation& op = *call.operation;
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    if (op.operands[i].presence == Presence::kForSum) {
      variant.types[i] = kernels::ElementType::kAbsent;
    }
  }
  return variant;
}

// Checks that all required operands are present and that their element types can be combined.
Status check_variant(const Operation& op, const kernels::Variant& variant) {
  if (kernels::is_supported(variant)) return {};
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
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i].typed_as < 0 || !variant.has(i)) continue;
    const auto other = static_cast<std::size_t>(op.operands[i].typed_as);
    if (!variant.has(other) || variant.types[i] == variant.types[other]) continue;
    return refuse(StatusCode::kUnsupported, op, op.operands[i],
                  std::format("is {}, but `{}` is {}; give both the same element type",
                              kernels::name(variant.types[i]), op.operands[other].name,
                              kernels::name(variant.types[other])));
  }
  if (!writes) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: every output is left out; ask for at least one", op.name));
  }
  if (variant.broadcast == Broadcast::kPerRow && !op.has_row_form) {
    return fail(StatusCode::kUnsupported,
                std::format("{}: channels lie along the columns only", op.name));
  }
  if (op.why_unsupported != nullptr) {
    if (const std::string_view why = op.why_unsupported(variant); !why.empty()) {
      return fail(StatusCode::kUnsupported,
                  std::format("{}: {} ({})", op.name, why, kernels::to_text(variant)));
    }
  }
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
    if (may_be_in_place && is_same_matrix(op.operands[i].shape, op.operands[output].shape) &&
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
  const std::int64_t needed =
      kernels::workspace_bytes(variant, call.operands.front().device.kind, checked.sizes);
  if (needed == 0) return {};
  if (call.workspace == nullptr || call.workspace_bytes < needed) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: `workspace` has {} bytes but {} are needed; ask "
                            "dorajit_operation_workspace, or dorajit_kernel_workspace for a "
                            "kernel of your own, how many",
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
  if (reference.device.kind == kernels::DeviceKind::kCpu &&
      kernels::template_of(variant).cpu_source.empty()) {
    return refuse(StatusCode::kWrongDevice, op, op.operands.front(),
                  "is on the CPU, for which there is no kernel; move it to a CUDA device");
  }
  DimensionSizes sizes(call);
  DORAJIT_TRY(sizes.bind_scalars());
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (!variant.has(i)) continue;
    const TensorView& tensor = call.operands[i];
    DORAJIT_TRY(sizes.bind(i));
    DORAJIT_TRY(check_span(op, op.operands[i], tensor));
    if (tensor.device != reference.device) {
      return refuse(StatusCode::kWrongDevice, op, op.operands[i],
                    std::format("is on {} but `{}` is on {}; move both to one device",
                                device_name(tensor.device), op.operands.front().name,
                                device_name(reference.device)));
    }
  }
  DORAJIT_ASSIGN(const kernels::Sizes all, sizes.all());
  return CheckedCall{
      .variant = variant, .sizes = all, .writes_nothing = kernels::writes_nothing(variant, all)};
}

Result<CheckedCall> check_call(const Call& call) {
  Result<CheckedCall> checked = check_shapes(call);
  if (!checked) return checked;
  const Operation& op = *call.operation;
  const kernels::Variant& variant = checked->variant;
  const bool is_launched = !checked->writes_nothing;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (!is_launched || !variant.has(i) || is_empty(call.operands[i])) continue;
    // An operand that is broadcast over no elements is not read.
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
  if (is_launched) DORAJIT_TRY(check_workspace(op, call, *checked));
  return checked;
}

}  // namespace dorajit::launch
