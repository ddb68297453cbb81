#include "bindings/c/call_operands.h"

#include <algorithm>
#include <format>
#include <string_view>

#include "bindings/c/broadcast_from_dlpack.h"
#include "bindings/c/tensor_from_dlpack.h"

namespace dorajit::bindings {
namespace {

using kernels::Operation;
using kernels::Presence;

// Flattens all dimensions of the tensor into one row.
Result<launch::TensorView> vector_from_dlpack(const Operation& operation, std::size_t operand,
                                              const DLTensor* tensor) {
  const int all = tensor == nullptr ? 1 : tensor->ndim;
  return tensor_from_dlpack(operation.name, operation.operands[operand].name, tensor,
                            std::max(all, 1), operation.mixes_all_types);
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
