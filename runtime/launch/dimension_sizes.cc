#include "runtime/launch/dimension_sizes.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <span>

namespace dorajit::launch {
namespace {

using kernels::Broadcast;
using kernels::Operand;
using kernels::Operation;

std::size_t at(int dimension) { return static_cast<std::size_t>(dimension); }

// False where two elements of a tensor with strides may be the same memory.
bool has_distinct_elements(const TensorView& tensor) {
  for (std::size_t i = 0; i < tensor.strides.size(); ++i) {
    if (tensor.shape[i] == 1) continue;
    // From the first element to the last one of the dimensions within this one.
    std::int64_t distance = 0;
    for (std::size_t j = 0; j < tensor.strides.size(); ++j) {
      if (j == i || tensor.strides[j] > tensor.strides[i]) continue;
      distance += (tensor.shape[j] - 1) * tensor.strides[j];
    }
    if (distance >= tensor.strides[i]) return false;
  }
  return true;
}

}  // namespace

std::unexpected<Error> refuse(StatusCode code, const Operation& operation, const Operand& operand,
                              std::string_view what) {
  return fail(code, std::format("{}: argument `{}` {}", operation.name, operand.name, what));
}

bool has_derived_size(const Operation& operation, const Operand& operand) {
  return operation.dimensions[at(operand.shape.inner)].keying == kernels::Keying::kDerived;
}

bool DimensionSizes::is_bound(int dimension) const { return bound_by_[at(dimension)] != kNothing; }

Status DimensionSizes::bind_scalars() {
  const Operation& op = *call_.operation;
  for (std::size_t i = 0; i < op.dimensions.size(); ++i) {
    if (op.dimensions[i].scalar < 0) continue;
    // A warm-up or explanation may leave the scalars out.
    if (at(op.dimensions[i].scalar) >= call_.scalars.size()) continue;
    const double value = call_.scalars[at(op.dimensions[i].scalar)];
    // 2^53 itself is also what the next integer is rounded to.
    if (!(value >= 0 && value < 0x1p53) || value != std::floor(value)) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("{}: argument `{}` is {}; give an integer from 0 to 2^53 - 1",
                              op.name, op.dimensions[i].name, value));
    }
    const auto size = static_cast<std::int64_t>(value);
    const std::int64_t most = op.dimensions[i].most;
    if (most > 0 && size > most) {
      return fail(StatusCode::kUnsupported,
                  std::format("{}: argument `{}` is {}, but at most {} are served", op.name,
                              op.dimensions[i].name, size, most));
    }
    sizes_[i] = size;
    bound_by_[i] = kScalar;
  }
  const std::size_t given = std::min(op.scalar_values.size(), call_.scalars.size());
  for (std::size_t i = 0; i < given; ++i) {
    const auto& [least, most, is_integer, tuned] = op.scalar_values[i];
    const double value = call_.scalars[i];
    if (!is_integer || (value >= least && value <= most && value == std::floor(value))) continue;
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: argument `{}` is {}; give an integer from {:.0f} to {:.0f}",
                            op.name, op.scalars[i], value, least, most));
  }
  return {};
}

// A dimension whose size differs from the size that another operand gave.
std::unexpected<Error> DimensionSizes::refuse_size(std::size_t index, int dimension,
                                                   std::int64_t size) const {
  const Operation& op = *call_.operation;
  const Operand& operand = op.operands[index];
  const TensorView& tensor = call_.operands[index];
  if (bound_by_[at(dimension)] == kScalar) {
    const std::string_view name = op.dimensions[at(dimension)].name;
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("has {} `{}` but argument `{}` is {}; give the tensor's", size, name,
                              name, sizes_[at(dimension)]));
  }
  const std::size_t by = at(bound_by_[at(dimension)]);
  const Operand& other = op.operands[by];
  const TensorView& there = call_.operands[by];
  if (operand.shape == other.shape && !operand.shape.is_exact) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("is {} x {} but `{}` is {} x {}; give both the same shape",
                              tensor.rows, tensor.cols, other.name, there.rows, there.cols));
  }
  return refuse(StatusCode::kInvalidArgument, op, operand,
                std::format("has {} `{}` but `{}` has {}; give both the same number", size,
                            op.dimensions[at(dimension)].name, other.name, sizes_[at(dimension)]));
}

Status DimensionSizes::bind_dimension(std::size_t index, int dimension, std::int64_t size) {
  if (!is_bound(dimension)) {
    const kernels::Dimension& known = call_.operation->dimensions[at(dimension)];
    if (known.keying == kernels::Keying::kConstant && size != known.most) {
      return refuse(StatusCode::kInvalidArgument, *call_.operation,
                    call_.operation->operands[index],
                    std::format("has {} elements along a dimension of {}", size, known.most));
    }
    if (known.most > 0 && size > known.most) {
      return refuse(
          StatusCode::kUnsupported, *call_.operation, call_.operation->operands[index],
          std::format("has {} `{}`, but at most {} are served", size, known.name, known.most));
    }
    sizes_[at(dimension)] = size;
    bound_by_[at(dimension)] = static_cast<int>(index);
    return {};
  }
  if (sizes_[at(dimension)] == size) return {};
  return refuse_size(index, dimension, size);
}

// Channels lie along the columns of a matrix, or along its rows, repeated for every sample.
Status DimensionSizes::bind_channels(std::size_t index) {
  const Operation& op = *call_.operation;
  const Operand& operand = op.operands[index];
  const TensorView& tensor = call_.operands[index];
  const int channels = operand.shape.inner;
  const kernels::Dimension& derived = op.dimensions[at(channels)];
  const bool is_per_column = call_.broadcast == Broadcast::kPerColumn;
  const std::size_t along = at(is_per_column ? derived.columns : derived.rows);
  const std::int64_t size = sizes_[along];
  const std::string_view matrix = op.operands[at(bound_by_[along])].name;
  const bool is_row = tensor.rows == 1;
  if (is_per_column) {
    if (!is_row || tensor.cols != size) {
      return refuse(StatusCode::kInvalidArgument, op, operand,
                    std::format("has {} x {} elements but `{}` has {} columns; give one element "
                                "per column",
                                tensor.rows, tensor.cols, matrix, size));
    }
  } else if (!is_row || !(tensor.cols > 0 ? size % tensor.cols == 0 : size == 0)) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("has {} x {} elements but `{}` has {} rows, which is not a multiple; "
                              "give one element per channel, the same channels for every sample",
                              tensor.rows, tensor.cols, matrix, size));
  }
  if (is_bound(channels) && sizes_[at(channels)] != tensor.cols) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("has {} elements but there are {} channels", tensor.cols,
                              sizes_[at(channels)]));
  }
  return bind_dimension(index, channels, tensor.cols);
}

// Binds each dimension of the tensor to the corresponding dimension of the operand.
Status DimensionSizes::bind_exactly(std::size_t index) {
  const kernels::OperandShape& shape = call_.operation->operands[index].shape;
  const TensorView& tensor = call_.operands[index];
  if (tensor.shape.size() != shape.leading.size() + 1) {
    return refuse(StatusCode::kInvalidArgument, *call_.operation, call_.operation->operands[index],
                  std::format("has {} dimensions; give it [{}]", tensor.shape.size(), shape.text));
  }
  for (std::size_t i = 0; i < shape.leading.size(); ++i) {
    DORAJIT_TRY(bind_dimension(index, shape.leading[i], tensor.shape[i]));
  }
  DORAJIT_TRY(bind_dimension(index, shape.inner, tensor.shape.back()));
  // Tensors without elements have no distances between them.
  return std::ranges::contains(tensor.shape, 0) ? Status() : bind_strides(index);
}

// Binds the strides that the operand describes, and refuses others than those.
Status DimensionSizes::bind_strides(std::size_t index) {
  const Operation& op = *call_.operation;
  const Operand& operand = op.operands[index];
  const TensorView& tensor = call_.operands[index];
  std::int64_t contiguous = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    const std::int64_t stride = tensor.strides.empty() ? contiguous : tensor.strides[i];
    contiguous *= tensor.shape[i];
    if (tensor.shape[i] == 1) continue;  // its stride may be anything
    const int described = operand.shape.strides.empty() ? -1 : operand.shape.strides[i];
    const std::string_view name = op.dimensions[kernels::dimension_at(operand.shape, i)].name;
    if (described < 0 && stride != contiguous / tensor.shape[i]) {
      return refuse(StatusCode::kInvalidArgument, op, operand,
                    std::format("has a stride of {} elements along `{}`, which is described as "
                                "contiguous; describe strides of it and of the dimensions before "
                                "it, as in \"T[rows:stride, cols]\", or pass a copy, as "
                                ".contiguous() makes it",
                                stride, name));
    }
    if (described < 0) continue;
    const kernels::Dimension& known = op.dimensions[at(described)];
    if (known.keying == kernels::Keying::kConstant && stride != known.most) {
      return refuse(StatusCode::kInvalidArgument, op, operand,
                    std::format("has a stride of {} elements along `{}`, which is described as {}",
                                stride, name, known.most));
    }
    DORAJIT_TRY(bind_dimension(index, described, stride));
  }
  if (operand.role != kernels::OperandRole::kOutput || has_distinct_elements(tensor)) return {};
  return refuse(StatusCode::kInvalidArgument, op, operand,
                "is written, but its strides give several of its elements one address; pass a "
                "tensor whose elements have addresses of their own");
}

Status DimensionSizes::bind(std::size_t index) {
  const Operation& op = *call_.operation;
  const Operand& operand = op.operands[index];
  const TensorView& tensor = call_.operands[index];
  if (tensor.rows < 0 || tensor.cols < 0) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("has a negative size ({} x {})", tensor.rows, tensor.cols));
  }
  if (has_derived_size(op, operand)) return bind_channels(index);
  if (operand.shape.is_exact) return bind_exactly(index);
  if (operand.shape.is_matrix()) {
    DORAJIT_TRY(bind_dimension(index, operand.shape.outer, tensor.rows));
  } else if (tensor.rows != 1) {
    return refuse(StatusCode::kInvalidArgument, op, operand,
                  std::format("is {} x {}; give a vector of `{}`", tensor.rows, tensor.cols,
                              op.dimensions[at(operand.shape.inner)].name));
  }
  return bind_dimension(index, operand.shape.inner, tensor.cols);
}

Result<kernels::Sizes> DimensionSizes::all() const {
  const auto& dimensions = call_.operation->dimensions;
  const auto bound = std::span(bound_by_).first(dimensions.size());
  const auto is_computed = [](const kernels::Dimension& dimension) {
    return dimension.keying == kernels::Keying::kComputed;
  };
  if (!std::ranges::contains(bound, kNothing) && std::ranges::none_of(dimensions, is_computed)) {
    return sizes_;
  }
  const kernels::Sizes complete =
      kernels::with_derived({.operation = call_.operation, .broadcast = call_.broadcast}, sizes_);
  kernels::Sizes sizes = sizes_;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    if (bound[i] == kNothing) sizes[i] = complete[i];
    if (!is_computed(dimensions[i]) || sizes[i] == complete[i]) continue;
    return refuse(StatusCode::kInvalidArgument, *call_.operation,
                  call_.operation->operands[at(bound[i])],
                  std::format("has {} `{}`, which is {} for the other sizes", sizes[i],
                              dimensions[i].name, complete[i]));
  }
  return sizes;
}

}  // namespace dorajit::launch
