// Sizes that are in no key: dimensions that are expressions of others, and the strides with which
// configs are tuned.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <format>
#include <limits>
#include <ranges>
#include <utility>
#include <vector>

#include "kernel_templates/sizes.h"
#include "own_kernels/own_operation.h"

namespace dorajit::own_kernels {
namespace {

using kernels::Sizes;

// No memory holds so many elements.
constexpr std::int64_t kTooMany = std::numeric_limits<std::int64_t>::max();

std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? kTooMany : result;
}

// More than the extent, so that a kernel that takes its rows for contiguous reads and writes what
// lies between them. Long rows begin at multiples of 128 elements, as most matrices' do, and at
// multiples of no larger power of two than `vector_width` if that is less than the largest one.
std::int64_t padded(std::int64_t extent, int vector_width) {
  constexpr std::int64_t kLongest = 128;
  const std::int64_t unit =
      extent >= kLongest
          ? kLongest
          : std::max<std::int64_t>(
                static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(extent))),
                kernels::kMaxVectorWidth);
  const std::int64_t stride = product(extent / unit + 1, unit);
  return vector_width < kernels::kMaxVectorWidth && stride < kTooMany ? stride + vector_width
                                                                      : stride;
}

}  // namespace

Status check_strides(const Argument& tensor) {
  for (std::size_t i = 1; i < tensor.strides.size(); ++i) {
    if (tensor.strides[i].empty() || !tensor.strides[i - 1].empty()) continue;
    return refuse_field("arguments",
                        std::format("has `{}` with a stride of `{}` and none of `{}`; give the "
                                    "dimensions before it strides, too",
                                    tensor.name, tensor.shape[i], tensor.shape[i - 1]));
  }
  if (tensor.strides.size() <= kernels::kMaxSizes || tensor.strides.front().empty()) return {};
  return refuse_field("arguments", std::format("has `{}` with strides of more than {} dimensions",
                                               tensor.name, kernels::kMaxSizes));
}

bool is_stride(const Description& description, const std::string& name) {
  const auto has = [&](std::vector<std::string> Argument::* list) {
    return std::ranges::any_of(description.arguments, [&](const Argument& argument) {
      return argument.is_tensor() && std::ranges::contains(argument.*list, name);
    });
  };
  return has(&Argument::strides) && !has(&Argument::shape);
}

bool is_computed_size(std::string_view dimension) {
  return dimension.find_first_of("+-*/%(") != std::string_view::npos;
}

Status read_computed_sizes(OwnOperation& own) {
  for (std::size_t i = 0; i < own.names.size(); ++i) {
    if (!is_computed_size(own.names[i])) continue;
    auto expression = Expression::parse(own.names[i], own.names);
    if (!expression) {
      return refuse_field("arguments",
                          std::format("has a dimension: {}", expression.error().message));
    }
    for (const kernels::Dimension& stride : own.all_dimensions) {
      const auto place = static_cast<std::size_t>(&stride - own.all_dimensions.data());
      if (stride.keying != kernels::Keying::kStride || !expression->reads(place)) continue;
      return refuse_field("arguments",
                          std::format("has the dimension `{}` of the stride `{}`; only "
                                      "strides follow from dimensions",
                                      own.names[i], stride.name));
    }
    const bool is_constant =
        std::ranges::none_of(std::views::iota(std::size_t{0}, own.names.size()),
                             [&](std::size_t name) { return expression->reads(name); });
    const std::vector<std::int64_t> nothing(own.names.size());
    if (is_constant && expression->evaluate(nothing).value_or(0) < 1) {
      return refuse_field(
          "arguments",
          std::format("has the dimension or stride `{}`, which is not positive", own.names[i]));
    }
    own.computed_sizes.emplace_back(i, *std::move(expression));
  }
  return {};
}

void space_out(const OwnOperation& own, int vector_width, std::int64_t innermost, Sizes& sizes) {
  const auto is_free = [&](int stride) {
    return stride >= 0 &&
           own.all_dimensions[static_cast<std::size_t>(stride)].keying == kernels::Keying::kStride;
  };
  for (std::size_t i = 0; i < own.all_dimensions.size(); ++i) {
    if (is_free(static_cast<int>(i))) sizes[i] = 0;
  }
  // Twice, because tensors may share strides, of which the larger one counts.
  for (std::size_t i = 0; i < 2 * own.all_operands.size(); ++i) {
    const kernels::OperandShape& shape = own.all_operands[i % own.all_operands.size()].shape;
    const std::span<const int> strides = shape.strides;
    std::int64_t extent = 1;
    bool is_empty = true;
    for (std::size_t place = 0; place < strides.size(); ++place) {
      if (is_free(strides[place])) continue;
      const std::int64_t size = sizes[kernels::dimension_at(shape, place)];
      extent = std::max(extent, product(kernels::stride_at(shape, sizes, place), size));
      is_empty = false;
    }
    for (std::size_t place = strides.size(); place-- > 0;) {
      if (!is_free(strides[place])) continue;
      const auto index = static_cast<std::size_t>(strides[place]);
      std::int64_t& stride = sizes[index];
      const int width =
          own.all_dimensions[index].limits_class ? vector_width : kernels::kMaxVectorWidth;
      stride = std::max(stride, is_empty ? innermost : padded(extent, width));
      extent = std::max(extent, product(stride, sizes[kernels::dimension_at(shape, place)]));
      is_empty = false;
    }
  }
}

void derive_sizes(const kernels::Variant& variant, int vector_width, Sizes& sizes) {
  const OwnOperation& own = OwnOperation::of(variant);
  for (const auto& [index, expression] : own.computed_sizes) {
    sizes[index] = std::max<std::int64_t>(expression.evaluate(sizes).value_or(kTooMany), 0);
  }
  space_out(own, vector_width, 1, sizes);
}

}  // namespace dorajit::own_kernels
