#include "runtime/launch/problem.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <format>
#include <ranges>
#include <system_error>
#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/integer_types.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"

namespace dorajit::launch {
namespace {

using kernels::Keying;

constexpr std::int64_t kWidestAccess = 16;  // bytes

std::int64_t bucket_of(std::int64_t size) {
  return std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1) - 1));
}

// An exact size is at least 1, because empty tensors launch nothing; a scalar may be 0.
std::int64_t min_key(const kernels::Dimension& dimension) {
  return dimension.keying == Keying::kExact && dimension.scalar < 0 ? 1 : 0;
}

// Operands that are accessed element by element, or not at all, do not limit the vector width.
bool limits_vectors(const kernels::Variant& variant, std::size_t operand) {
  if (!variant.has(operand)) return false;
  const kernels::Operation& operation = *variant.operation;
  const kernels::Operand& known = operation.operands[operand];
  if (!known.limits_vectors || kernels::is_converted(variant, operand)) return false;
  if (known.shape.is_matrix()) return true;
  if (known.role == kernels::OperandRole::kOutput) return false;
  const auto dimension = static_cast<std::size_t>(known.shape.inner);
  if (operation.dimensions[dimension].keying == Keying::kDerived) {
    return variant.broadcast == kernels::Broadcast::kPerColumn;
  }
  // It is read together with a row of a matrix, or once per element.
  return std::ranges::any_of(operation.operands, [&](const kernels::Operand& other) {
    return other.shape.is_matrix() && other.shape.inner == known.shape.inner;
  });
}

bool allows(const TensorView& tensor, std::int64_t width) {
  const std::int64_t size = kernels::element_size(tensor.type);
  const std::int64_t access = std::min(kWidestAccess, width * size);
  const auto address = static_cast<std::int64_t>(std::bit_cast<std::uintptr_t>(tensor.data));
  return address % access == 0 && (tensor.rows <= 1 || tensor.row_stride * size % access == 0);
}

// Whether the tensor memory accelerator can move every matrix of the call.
bool are_boxes(const kernels::Operation& operation, std::span<const TensorView> operands) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool is_matrix = operation.operands[i].shape.is_matrix() &&
                           operands[i].type != kernels::ElementType::kAbsent;
    if (is_matrix && !allows(operands[i], kWidestAccess)) return false;
  }
  return true;
}

// Removes "/", the mark and the number at the end of the text.
template <class Number>
bool take_number(std::string_view& text, const kernels::Mark& mark, Number& number) {
  const std::size_t at = text.rfind('/');
  if (at == std::string_view::npos) return false;
  std::string_view digits = text.substr(at + 1);
  if (!digits.starts_with(mark.text())) return false;
  digits.remove_prefix(mark.text().size());
  if (!mark.is_letter()) {
    if (!digits.starts_with('=')) return false;
    digits.remove_prefix(1);
  }
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  if (error != std::errc() || end != digits.end()) return false;
  text = text.substr(0, at);
  return true;
}

// The dimension indices in the order of the problem's text: exact ones first.
std::vector<std::size_t> keyed_dimensions(const kernels::Operation& operation) {
  std::vector<std::size_t> keyed;
  for (const Keying keying : {Keying::kExact, Keying::kBucketed}) {
    for (std::size_t i = 0; i < operation.dimensions.size(); ++i) {
      if (operation.dimensions[i].keying == keying) keyed.push_back(i);
    }
  }
  return keyed;
}

// The product of non-negative factors; nothing beyond the bound.
std::optional<std::int64_t> bytes_of(std::int64_t rows, std::int64_t row_stride,
                                     std::int64_t element_size) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, row_stride, &bytes) ||
      __builtin_mul_overflow(bytes, element_size, &bytes) || bytes > kMaxOperandBytes) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace

std::string to_text(const Problem& problem) {
  const kernels::Operation& operation = *problem.variant.operation;
  std::string text = std::format("{}/v{}", kernels::to_text(problem.variant), problem.vector_width);
  for (const std::size_t i : keyed_dimensions(operation)) {
    text += "/" + kernels::to_text(operation.dimensions[i].mark, problem.key[i]);
  }
  return text;
}

std::optional<Problem> parse_problem(std::string_view text) {
  const kernels::Operation* const operation =
      kernels::find_operation(text.substr(0, text.find_first_of("./")));
  if (operation == nullptr) return std::nullopt;
  Problem problem;
  std::string_view rest = text;
  for (const std::size_t i : keyed_dimensions(*operation) | std::views::reverse) {
    const kernels::Dimension& dimension = operation->dimensions[i];
    if (!take_number(rest, dimension.mark, problem.key[i]) || problem.key[i] < min_key(dimension)) {
      return std::nullopt;
    }
  }
  if (!take_number(rest, 'v', problem.vector_width)) return std::nullopt;
  const auto variant = kernels::parse_variant(rest);
  if (!variant) return std::nullopt;
  problem.variant = *variant;
  const bool is_possible = problem.vector_width >= 1 && check_size(problem);
  return is_possible && to_text(problem) == text ? std::optional(problem) : std::nullopt;
}

kernels::Sizes Problem::largest_sizes() const {
  kernels::Sizes sizes = key;
  const auto& dimensions = variant.operation->dimensions;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i].keying != Keying::kBucketed) continue;
    sizes[i] = std::int64_t{1} << key[i];
    // The largest size that the class divides, and twice the class does not.
    const bool is_class = dimensions[i].limits_class && vector_width < kernels::kMaxVectorWidth;
    if (is_class && vector_width < sizes[i] / 2) sizes[i] -= vector_width;
    if (const std::int64_t most = dimensions[i].most; most > 0) {
      sizes[i] = std::min(sizes[i], dimensions[i].limits_class ? most - most % vector_width : most);
    }
  }
  return kernels::with_derived(variant, sizes, vector_width);
}

Problem make_problem(const kernels::Variant& variant, const kernels::Sizes& sizes,
                     std::span<const TensorView> operands) {
  const kernels::Operation& operation = *variant.operation;
  int width = kernels::widest_vector(variant, operands.front().device.kind);
  if (width > 1 && operation.moves_boxes != nullptr && operation.moves_boxes(sizes) &&
      !are_boxes(operation, operands)) {
    width /= 2;
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!limits_vectors(variant, i)) continue;
    while (width > 1 && !allows(operands[i], width)) width /= 2;
  }
  const auto& dimensions = operation.dimensions;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (!dimensions[i].limits_class) continue;
    while (width > 1 && sizes[i] % width != 0) width /= 2;
  }
  Problem problem{.variant = variant, .vector_width = width};
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i].keying == Keying::kExact) {
      problem.key[i] = std::max(sizes[i], min_key(dimensions[i]));
    } else if (dimensions[i].keying == Keying::kBucketed) {
      problem.key[i] = bucket_of(sizes[i]);
    }
  }
  return problem;
}

Problem make_problem(const kernels::Variant& variant, kernels::DeviceKind kind,
                     const kernels::Sizes& sizes) {
  const kernels::Sizes complete = kernels::with_derived(variant, sizes);
  std::array<TensorView, kernels::kMaxOperands> operands{};
  const auto& specs = variant.operation->operands;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!variant.has(i)) {
      operands[i].type = kernels::ElementType::kAbsent;
      continue;
    }
    operands[i] = {.data = nullptr,
                   .type = variant.types[i],
                   .device = {.kind = kind, .ordinal = 0},
                   .rows = kernels::num_rows(specs[i].shape, complete),
                   .cols = kernels::row_length(specs[i].shape, complete),
                   .row_stride = kernels::row_length(specs[i].shape, complete)};
  }
  return make_problem(variant, complete, std::span(operands).first(specs.size()));
}

bool place_rows(TensorView& tensor) {
  const auto& [shape, strides] = std::pair(tensor.shape, tensor.strides);
  std::int64_t span = 1;
  std::size_t outermost = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    std::int64_t length = 0;
    if (strides[i] < 0 || __builtin_mul_overflow(shape[i] - 1, strides[i], &length) ||
        __builtin_add_overflow(span, length, &span)) {
      return false;
    }
    if (shape[outermost] == 1 || strides[i] > strides[outermost]) outermost = i;
  }
  tensor.rows = shape[outermost];
  tensor.row_stride = strides[outermost];
  for (std::size_t i = 0; i < shape.size();) {
    std::int64_t length = 0;
    const bool continues = shape[i] > 1 && strides[i] < tensor.row_stride &&
                           !__builtin_mul_overflow(shape[i], strides[i], &length) &&
                           length == tensor.row_stride;
    if (continues) {
      tensor.rows *= shape[i];
      tensor.row_stride = strides[i];
    }
    i = continues ? 0 : i + 1;  // what continues that dimension may stand anywhere
  }
  tensor.cols = span - (tensor.rows - 1) * tensor.row_stride;
  if (tensor.row_stride >= tensor.cols) return true;
  tensor.rows = 1;
  tensor.cols = tensor.row_stride = span;
  return true;
}

std::optional<std::int64_t> span_bytes(const TensorView& tensor) {
  if (tensor.rows == 0 || tensor.cols == 0) return 0;
  const std::int64_t stride =
      tensor.rows > 1 ? std::max(tensor.row_stride, tensor.cols) : tensor.cols;
  return bytes_of(tensor.rows, stride, kernels::element_size(tensor.type));
}

Status check_size(const kernels::Variant& variant, const kernels::Sizes& sizes) {
  const kernels::Operation& op = *variant.operation;
  for (std::size_t i = 0; i < op.dimensions.size(); ++i) {
    const kernels::Dimension& dimension = op.dimensions[i];
    if (dimension.most == 0 || sizes[i] <= dimension.most) continue;
    return fail(StatusCode::kUnsupported,
                std::format("{}: {} `{}`, but at most {} are served", op.name, sizes[i],
                            dimension.name, dimension.most));
  }
  const kernels::Sizes complete = kernels::with_derived(variant, sizes);
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const kernels::OperandShape& shape = op.operands[i].shape;
    const std::int64_t length = shape.strides.empty() ? kernels::row_length(shape, complete)
                                                      : kernels::span_length(shape, complete);
    if (!variant.has(i) || bytes_of(kernels::num_rows(shape, complete), length,
                                    kernels::element_size(variant.types[i]))) {
      continue;
    }
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: {} of {} take more than 2^47 bytes, which is all that a process "
                            "can address; give fewer",
                            op.name, kernels::to_text(op, sizes), kernels::name(variant.types[i])));
  }
  return {};
}

Status check_size(const Problem& problem) {
  kernels::Sizes smallest = problem.key;
  const auto& dimensions = problem.variant.operation->dimensions;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i].keying != kernels::Keying::kBucketed) continue;
    // Sizes above 2^61 fit in no address space.
    const auto bucket = std::min<std::int64_t>(problem.key[i], 62);
    smallest[i] = bucket == 0 ? 1 : (std::int64_t{1} << (bucket - 1)) + 1;
  }
  return check_size(problem.variant, smallest);
}

}  // namespace dorajit::launch
