// The tensor maps of own kernels (CUtensorMap), which the device makes for each call of a tensor's
// address and sizes, and of the box that the description has.
#include <algorithm>
#include <format>
#include <utility>

#include "kernel_templates/integer_types.h"
#include "kernel_templates/sizes.h"
#include "own_kernels/launch_extents.h"

namespace dorajit::own_kernels {
namespace {

using kernels::TensorBox;

// What the tensor memory accelerator takes.
constexpr int kArchitectureOfMaps = 90;
constexpr std::int64_t kLongestSide = 256;
constexpr std::int64_t kUnit = 16;  // bytes that strides and rows of a box are multiples of
constexpr std::int64_t kLargestSize = std::int64_t{1} << 32;
constexpr std::int64_t kLargestStride = (std::int64_t{1} << 40) - 1;
constexpr std::int64_t kSwizzles[] = {0, 32, 64, 128};

// The last dimension first, as an index into the sizes.
std::size_t dimension_of(const OwnOperation& own, std::size_t operand, std::size_t place) {
  const kernels::OperandShape& shape = own.all_operands[operand].shape;
  return kernels::dimension_at(shape, kernels::rank_of(shape) - 1 - place);
}

std::int64_t element_bytes(const kernels::Variant& variant, const OwnOperation::TensorMap& map) {
  return kernels::element_size(variant.types[map.operand]);
}

// Of the box, the contiguous dimension first; 0 for a side that is none.
int side_of(const OwnOperation::TensorMap& map, std::size_t place, const Values& values) {
  const auto side = map.box[map.box.size() - 1 - place].evaluate(values);
  return side && *side >= 1 && *side <= kLongestSide ? static_cast<int>(*side) : 0;
}

// Bytes from one element along the dimension to the next; -1 beyond what a map has.
std::int64_t stride_of(const OwnOperation& own, const OwnOperation::TensorMap& map,
                       std::size_t place, const kernels::Sizes& sizes, std::int64_t bytes) {
  const kernels::OperandShape& shape = own.all_operands[map.operand].shape;
  const std::int64_t stride = kernels::stride_at(shape, sizes, kernels::rank_of(shape) - 1 - place);
  return stride > kLargestStride / bytes ? -1 : stride * bytes;
}

std::string why_tensor_does_not_fit(const OwnOperation& own, const OwnOperation::TensorMap& map,
                                    const kernels::Sizes& sizes, std::int64_t bytes) {
  const std::string_view tensor = own.all_operands[map.operand].name;
  for (std::size_t i = 0; i < map.box.size(); ++i) {
    const std::size_t dimension = dimension_of(own, map.operand, i);
    if (sizes[dimension] < 1 || sizes[dimension] > kLargestSize) {
      return std::format(
          "its tensor map `{}` is of `{}`, which has {} elements along `{}`; it is 1 to 2^32",
          map.name, tensor, sizes[dimension], own.all_dimensions[dimension].name);
    }
    if (i == 0) continue;
    const std::int64_t stride = stride_of(own, map, i, sizes, bytes);
    if (stride > 0 && stride % kUnit == 0) continue;
    return std::format(
        "its tensor map `{}` is of `{}`, whose elements along `{}` are {}; pad the tensor, and let "
        "the constraint ask for such sizes",
        map.name, tensor, own.all_dimensions[dimension].name,
        stride < 0 ? "2^40 bytes apart or more"
                   : std::format("{} bytes apart, no multiple of {}", stride, kUnit));
  }
  return {};
}

std::string why_box_does_not_fit(const OwnOperation& own, const OwnOperation::TensorMap& map,
                                 const Values& values, std::int64_t bytes) {
  const auto explain = [&](std::string_view part, const Expression& expression,
                           std::string_view what) {
    return explain_value(own, values, std::format("tensor map `{}`: the {}", map.name, part),
                         expression, what);
  };
  constexpr std::string_view kSide = "side of the box";
  for (std::size_t i = 0; i < map.box.size(); ++i) {
    if (side_of(map, i, values) > 0) continue;
    const Expression& side = map.box[map.box.size() - 1 - i];
    const auto value = side.evaluate(values);
    return explain(kSide, side,
                   value ? std::format("is {}; it is 1 to {}", *value, kLongestSide)
                         : std::string(name(value.error())));
  }
  const std::int64_t inner = side_of(map, 0, values) * bytes;
  if (inner % kUnit != 0) {
    return explain(kSide, map.box.back(),
                   std::format("is {} bytes, no multiple of {}", inner, kUnit));
  }
  const auto swizzle = map.swizzle.evaluate(values);
  if (!swizzle || !std::ranges::contains(kSwizzles, *swizzle)) {
    return explain("swizzle", map.swizzle,
                   swizzle ? std::format("is {} bytes; it is 0, 32, 64 or 128", *swizzle)
                           : std::string(name(swizzle.error())));
  }
  if (*swizzle == 0 || inner <= *swizzle) return {};
  return explain(kSide, map.box.back(),
                 std::format("is {} bytes, more than its swizzle of {}", inner, *swizzle));
}

}  // namespace

Status read_tensor_maps(OwnOperation& own) {
  for (const Argument& argument : own.given.arguments) {
    if (!argument.is_tensor_map()) continue;
    const auto refuse = [&](std::string_view what) {
      return refuse_field("arguments",
                          std::format("has the tensor map `{}` {}", argument.name, what));
    };
    const auto found =
        std::ranges::find(own.all_operands, argument.tensor, &kernels::Operand::name);
    if (found == own.all_operands.end()) {
      return refuse(std::format("of `{}`, which is no tensor", argument.tensor.substr(0, 100)));
    }
    OwnOperation::TensorMap map{
        .name = argument.name,
        .operand = static_cast<std::size_t>(found - own.all_operands.begin())};
    const kernels::OperandShape& shape = found->shape;
    const std::size_t rank = kernels::rank_of(shape);
    if (argument.shape.size() != rank || rank > TensorBox::kMaxRank) {
      return refuse(
          std::format("with a box of {} sides; `{}` has {} dimensions, of which a tensor "
                      "map has 1 to {}",
                      argument.shape.size(), argument.tensor, rank, TensorBox::kMaxRank));
    }
    if (!shape.strides.empty() && shape.strides.back() >= 0) {
      return refuse(
          std::format("of `{}`, whose last dimension has a stride; tensor maps need it "
                      "contiguous",
                      argument.tensor));
    }
    if (found->is_unaligned) {
      return refuse(std::format("of `{}`, which stands in \"unaligned\"; tensor maps need 16 bytes",
                                argument.tensor));
    }
    if (own.tensor_maps.size() == kernels::kTensorMaps) {
      return refuse(std::format("beyond the {} that are served", kernels::kTensorMaps));
    }
    const auto parse = [&](const std::string& text, Expression& parsed) -> Status {
      auto expression = Expression::parse(text, own.names);
      if (!expression)
        return refuse(std::format("that is refused: {}", expression.error().message));
      parsed = *std::move(expression);
      return {};
    };
    for (const std::string& side : argument.shape) {
      DORAJIT_TRY(parse(side, map.box.emplace_back()));
    }
    DORAJIT_TRY(parse(argument.swizzle, map.swizzle));
    own.tensor_maps.push_back(std::move(map));
  }
  return {};
}

std::string why_no_tensor_map(const kernels::Variant& variant, const kernels::Sizes& sizes,
                              const Values& values, const kernels::SpaceTraits& traits) {
  const OwnOperation& own = OwnOperation::of(variant);
  for (const OwnOperation::TensorMap& map : own.tensor_maps) {
    if (!variant.has(map.operand)) continue;
    if (traits.architecture != 0 && traits.architecture < kArchitectureOfMaps) {
      return std::format(
          "its tensor map `{}` needs a device of compute capability 9.0 or newer, and this one has "
          "{}.{}",
          map.name, traits.architecture / 10, traits.architecture % 10);
    }
    const std::int64_t bytes = element_bytes(variant, map);
    std::string why = why_tensor_does_not_fit(own, map, sizes, bytes);
    if (why.empty()) why = why_box_does_not_fit(own, map, values, bytes);
    if (!why.empty()) return why;
  }
  return {};
}

kernels::TensorBoxes tensor_boxes(const kernels::Variant& variant, const kernels::Config& config,
                                  const kernels::LaunchArguments& arguments, int processors) {
  const OwnOperation& own = OwnOperation::of(variant);
  kernels::TensorBoxes boxes;
  if (own.tensor_maps.empty()) return boxes;
  const Values values = values_of(own, arguments.all_sizes, config, processors);
  for (const OwnOperation::TensorMap& map : own.tensor_maps) {
    TensorBox& box = boxes.boxes[boxes.count++];
    if (!variant.has(map.operand)) continue;
    const std::int64_t bytes = element_bytes(variant, map);
    box = {.data = arguments.operands[map.operand].data,
           .type = variant.types[map.operand],
           .rank = static_cast<int>(map.box.size()),
           .swizzle_bytes = static_cast<int>(map.swizzle.evaluate(values).value_or(0))};
    for (std::size_t i = 0; i < map.box.size(); ++i) {
      box.sizes[i] = arguments.all_sizes[dimension_of(own, map.operand, i)];
      box.box[i] = side_of(map, i, values);
      if (i > 0) box.strides[i - 1] = stride_of(own, map, i, arguments.all_sizes, bytes);
    }
  }
  return boxes;
}

}  // namespace dorajit::own_kernels
